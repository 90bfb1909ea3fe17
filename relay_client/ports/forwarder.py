"""Local ports on 127.0.0.1 and ::1: each connection is carried to the agent that serves the port's destination.

An editor may connect before the job exists. Its connection stays open while the client searches for the agent. A port
accepts any number of connections, because an editor opens one more to the parent's port for each child process. A port
accepts connections only from the current user and root, because a debugger executes any code it receives, and every
user of the machine can reach 127.0.0.1.

Why the local port has the number of the logical port: launch configurations name it, and they are written before the
job exists. A free port for each rank would never be taken, but would have to be looked up before each F5. So a port
that is in use is an error that names the program, unless an editor listens there, which the user may have meant.

Why a lock beside the port itself: a bind fails alike for a second relay-client and for a listening editor, and the two
need opposite treatment.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from relay_client.agents.roster import Destination
from relay_client.agents.tunnels import NotForwarded, Tunnels
from relay_client.ports.all_ranks import JobConnection
from relay_client.ports.connection_records import Connections, PortLog
from relay_client.ports.editor_link import PortContext
from relay_client.ports.listening_editors import Listener, ReverseForwarder, listener_on, program_on
from relay_client.ports.local_port import LocalPort, PortLock, debugger_ports, in_use_error
from relay_client.ports.waiting_connection import WaitingConnection
from relay_core.errors import LocalPortInUse, RelayDebugError, UsageError
from relay_core.net.loopback import PeerCheck
from relay_core.net.streams.local_endpoint import LocalEndpoint
from relay_core.net.streams.local_server import LocalServer
from relay_core.net.tasks import TaskSet
from relay_core.socket_tables import ROOT, own_user, shared_tables

LOCAL_HOST = "127.0.0.1"
LOCAL_HOST_IPV6 = "::1"
"""Programs whose settings name `localhost` may try this address first, and some try no other."""
MAX_TRIES = 10
"""Maximum number of attempts to open a free port; another program may take a port first."""

logger = logging.getLogger(__name__)


class Forwarder:
    """Listens on local ports and carries their connections.

        async with Forwarder(tunnels, [5678, 5679]) as forwarder:
            ...

    Args:
        tunnels: The tunnels to the agents.
        ports: The ports to open; a plain number N stands for local port N, which leads to logical port N.
        may_reverse: Whether the job may connect to an editor of this user that is already listening on a port.
        trust_unknown: Whether the job may connect to a program even if this system does not show which user owns it, or
            if it is not debugpy's adapter.
        allow_terminate: Whether an editor may terminate the job.

    Raises:
        LocalPortInUse, UsageError: raised on entry if a port cannot be opened; all other ports are closed again.
    """

    def __init__(
        self,
        tunnels: Tunnels,
        ports: Sequence[int | LocalPort],
        *,
        may_reverse: bool = False,
        trust_unknown: bool = False,
        allow_terminate: bool = False,
    ) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change to the ports and their connections."""
        self.on_open: Callable[[], None] = lambda: None
        """Called once all ports that were given are open."""
        self.connections = Connections(self._changed)
        """The connections to these ports."""
        self.job_sessions: list[JobConnection] = []
        """The debug sessions of all ranks."""
        self._tunnels = tunnels
        self._ports = [debugger_ports([port])[0] if isinstance(port, int) else port for port in ports]
        self._may_reverse = may_reverse
        self._context = PortContext(tunnels, self.connections, allow_terminate, trust_unknown)
        self._open: dict[int, _OpenPort] = {}
        self._has_checked_system = False

    async def __aenter__(self) -> Forwarder:
        try:
            await self.open_all(self._ports)
        except BaseException:
            await self.close()
            raise
        self.on_open()
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.close()

    @property
    def opened(self) -> list[int]:
        """The open local ports, excluding those on which an editor is listening."""
        return [number for number, port in self._open.items() if port.servers]

    @property
    def ports(self) -> list[LocalPort]:
        """The open local ports and their destinations."""
        return [port.local for port in self._open.values() if port.servers]

    @property
    def editor_ports(self) -> list[LocalPort]:
        """The ports on which an editor is listening, or may listen again."""
        return [port.local for port in self._open.values() if not port.servers]

    async def open_all(self, ports: Iterable[LocalPort]) -> None:
        """Open more ports, as those given on the command line.

        Raises:
            LocalPortInUse, UsageError: a port cannot be opened; the others are closed again.
        """
        async with contextlib.AsyncExitStack() as undoing:
            for local in ports:
                await self.open(local, may_reverse=self._may_reverse)
                undoing.push_async_callback(self.close_port, local.port)
            undoing.pop_all()

    def leads_to(self, port: int) -> bool:
        """Return whether one of the ports, open or still to be opened, leads to a logical port."""
        return any(local.destination == Destination(port) for local in (*self._ports, *self.ports))

    async def open(self, local: LocalPort, *, may_reverse: bool = False) -> None:
        """Open one more port.

        Args:
            local: The port and its destination.
            may_reverse: Whether the job may connect to an editor of this user that is already listening on the port.

        Raises:
            LocalPortInUse, UsageError: the port cannot be opened.
        """
        lock = PortLock(local.port)
        port = _OpenPort(local, lock, PortLog(local))
        with contextlib.ExitStack() as undoing:
            undoing.callback(lock.release)
            try:
                port.servers = await self._listen(port)
            except OSError as error:
                to = local.destination
                is_reversible = may_reverse and lock.is_held and not (to.is_forward or to.is_all_ranks)
                if error.errno != errno.EADDRINUSE or not is_reversible:
                    raise _listen_error(local.port, error) from None
                self._check_editor(local.port)
                reverse = ReverseForwarder(self._context, local, port.log)
                port.tasks.spawn(reverse.run(), name=f"reverse of port {local.port}")
            undoing.pop_all()
        self._open[local.port] = port
        self._warn_of_other_users()
        self.on_change()

    async def open_free(self, destination: Destination) -> LocalPort:
        """Open a port that is free on this machine, and return it.

        Raises:
            LocalPortInUse: no port is free.
        """
        for _ in range(MAX_TRIES):
            with socket.socket() as probe:
                probe.bind((LOCAL_HOST, 0))
                local = LocalPort(probe.getsockname()[1], destination)
            with contextlib.suppress(LocalPortInUse):  # another program has taken the port
                await self.open(local)
                return local
        raise LocalPortInUse("this machine has no free port")

    async def check_forwards(self) -> None:
        """Once an agent has been found, log each `--forward` port that no agent serves."""
        while not len(self._tunnels.roster):
            await self._tunnels.search.changed.wait()
        for port in [port for port in self._open.values() if port.local.destination.is_forward]:
            wanted = port.local.destination
            try:
                await self._tunnels.search.find(partial(self._tunnels.agent_for, wanted))
            except RelayDebugError as error:
                reason = self._tunnels.unreachable_error(wanted, error)
                if isinstance(reason, NotForwarded):
                    port.log.failed("", reason)

    async def close(self) -> None:
        """Stop accepting connections, then close all existing ones."""
        for port in self._open.values():
            for server in port.servers:
                server.close()
        for number in list(self._open):
            await self.close_port(number)

    async def close_port(self, number: int) -> None:
        """Close one port and its connections, if it is open."""
        if (port := self._open.pop(number, None)) is None:
            return
        for server in port.servers:
            server.close()
            await server.wait_closed()
        await port.tasks.cancel_all()
        port.lock.release()
        self.on_change()

    async def disconnect(self, number: int, why: str) -> int:
        """Close the connections to one port, which stays open, and return the number of connections.

        Args:
            number: The local port.
            why: The reason to show to the editors.
        """
        for record in self.connections:
            if record.port == number:
                record.why_cancelled = why
        if (port := self._open.get(number)) is None:
            return 0
        count = len(port.tasks)
        await port.tasks.cancel_all()
        return count

    def _changed(self) -> None:
        self.on_change()

    def _warn_of_other_users(self) -> None:
        if self._has_checked_system or not self.opened:  # reading the socket tables takes as long as opening many ports
            return
        self._has_checked_system = True
        if not shared_tables().shows_owners:
            logger.warning(
                "this system does not reveal which user is connecting, so any user of this machine can use the local "
                "ports"
            )

    def _check_editor(self, port: int) -> None:
        """Log that the job will connect to the program that is listening on `port`.

        Raises:
            LocalPortInUse: the program is not a debugger, or another user owns it, or its user cannot be determined.
        """
        try:
            listener = listener_on(port)
        except OSError as error:
            raise in_use_error(port, f"a program whose user cannot be determined ({error.strerror})") from None
        if listener is Listener.FOREIGN:
            raise in_use_error(port, "another user")
        program = program_on(port)
        by = f" by {program}" if program else ""
        if listener is Listener.OWN:
            logger.info("port %d is in use%s: the job will connect to this listening editor", port, by)
        elif self._context.trust_unknown:
            logger.warning("port %d is in use%s: the job will connect to it", port, by or " by an unknown program")
        else:
            hidden = ", and this system does not show which user's program is using it"
            raise LocalPortInUse(
                f"port {port} on this machine is in use{by or hidden}",
                hint="if it is your listening editor, add --listen; otherwise, stop it or choose other ports with "
                "--ports",
            )

    async def _listen(self, port: _OpenPort) -> list[LocalServer]:
        local = port.local
        peers = PeerCheck(
            frozenset({own_user(), ROOT}), lambda sentence: logger.warning("port %d: %s", local.port, sentence)
        )

        def accepted(endpoint: LocalEndpoint) -> None:
            port.tasks.spawn(self._carry(port, endpoint), name=f"connection to port {local.port}")

        protocol = partial(LocalEndpoint, accepted)
        servers = [await LocalServer.open(LOCAL_HOST, local.port, protocol, peers.admits)]
        try:
            servers.append(await LocalServer.open(LOCAL_HOST_IPV6, local.port, protocol, peers.admits))
        except OSError as error:  # usually, this machine has no IPv6
            if error.errno == errno.EADDRINUSE:
                logger.warning(
                    "another program uses port %d on %s: in the editor's settings, use %s instead of localhost",
                    local.port,
                    LOCAL_HOST_IPV6,
                    LOCAL_HOST,
                )
        return servers

    async def _carry(self, port: _OpenPort, endpoint: LocalEndpoint) -> None:
        local = port.local
        if local.destination.is_all_ranks:
            await self._carry_job(local, endpoint)
            return
        record = self.connections.add(local.port)
        try:
            await WaitingConnection(self._context, local, record, endpoint, port.log).carry()
        finally:
            self.connections.remove(record)

    async def _carry_job(self, local: LocalPort, endpoint: LocalEndpoint) -> None:
        connection = JobConnection(self._context, local, endpoint)
        self.job_sessions.append(connection)
        try:
            with self.connections.in_use():
                await connection.run()
        finally:
            self.job_sessions.remove(connection)


@dataclass(eq=False)
class _OpenPort:
    """One local port that is in use by this program."""

    local: LocalPort
    lock: PortLock
    log: PortLog
    servers: list[LocalServer] = field(default_factory=list)
    """One for each address; empty if an editor is listening on the port and the job connects to it."""
    tasks: TaskSet = field(default_factory=TaskSet)
    """The tasks that carry its connections, or the one that connects the job to the editor."""


def _listen_error(port: int, error: OSError) -> RelayDebugError:
    if error.errno == errno.EADDRINUSE:
        return in_use_error(port, program_on(port))
    if error.errno == errno.EACCES:
        return UsageError(f"port {port} needs administrator rights", hint="use port 1024 or higher")
    return LocalPortInUse(
        f"cannot listen on {LOCAL_HOST}:{port}: {error.strerror}", hint="choose other ports with --ports"
    )
