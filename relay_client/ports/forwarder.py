"""Forwarding of local ports on 127.0.0.1: each connection is carried to the agent that serves the port's destination.

An editor may connect before the job exists: the connection stays open, and the search for the agent continues, until
one is found or the editor disconnects. A port accepts any number of connections, because an editor opens one more
to the parent's port for each child process. It accepts those of its own user only, and of root: a debugger port runs
whatever code it is given, and every user of the machine can reach 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
from collections.abc import Sequence

from relay_client.agents.tunnels import Tunnels
from relay_client.ports.connection import carry
from relay_client.ports.local_port import LocalPort, debugger_ports
from relay_client.ports.port_lock import PortLock, PortLocked
from relay_client.ports.reverse import Editor, ReverseForwarder, editor_on
from relay_core.errors import LocalPortInUse, RelayDebugError, UsageError
from relay_core.net.socket_owner import PeerCheck
from relay_core.net.streams.endpoint import LocalEndpoint, listen_local
from relay_core.net.tasks import TaskSet
from relay_core.socket_tables import ROOT, SocketTables, own_user

__all__ = ["LOCAL_HOST", "Forwarder"]

LOCAL_HOST = "127.0.0.1"

logger = logging.getLogger(__name__)


class Forwarder:
    """Listens on local ports and carries their connections.

        async with Forwarder(tunnels, [5678, 5679]) as forwarder:
            ...

    Args:
        tunnels: The tunnels to the agents.
        ports: The ports to open; a number stands for the logical port of the same number.
        may_reverse: Whether the job may connect to an editor of this user that is already listening on a port.
        trust_unknown: Whether the job may also connect to a program if this system does not show whose it is.
        allow_terminate: Whether an editor may end the job.

    Raises:
        LocalPortInUse, UsageError: on entering, if a port cannot be opened; all other ports are closed again.
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
        self.opened: list[int] = []
        """The open local ports."""
        self._tunnels = tunnels
        self._ports = [debugger_ports([port])[0] if isinstance(port, int) else port for port in ports]
        self._may_reverse = may_reverse
        self._trust_unknown = trust_unknown
        self._allow_terminate = allow_terminate
        self._servers: list[asyncio.Server] = []
        self._locks: list[PortLock] = []
        self._connections = TaskSet()
        self._numbers = itertools.count(1)

    def __repr__(self) -> str:
        return f"<Forwarder ports={[local.port for local in self._ports]} connections={len(self._connections)}>"

    async def __aenter__(self) -> Forwarder:
        try:
            for local in self._ports:
                await self._open(local)
        except BaseException:
            await self.close()
            raise
        if self.opened and not SocketTables().is_readable:
            logger.warning("this system does not show who connects: every user of this machine can use the local ports")
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop accepting, then close all connections."""
        for server in self._servers:
            server.close()
        await self._connections.cancel_all()
        for server in self._servers:
            await server.wait_closed()
        for lock in self._locks:
            lock.release()
        self._locks.clear()

    async def _open(self, local: LocalPort) -> None:
        try:
            lock = PortLock(local.port)
        except PortLocked:
            raise _in_use(local.port, "another relay-client") from None
        self._locks.append(lock)
        try:
            self._servers.append(await self._listen(local))
            self.opened.append(local.port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not self._is_reversible(local, lock):
                raise _listen_error(local.port, error) from None
            self._check_editor(local.port)
            self._connections.spawn(self._reverse(local.port), name=f"reverse of port {local.port}")

    def _check_editor(self, port: int) -> None:
        """Log that the job will connect to the program that is listening on `port`.

        Raises:
            LocalPortInUse: it is another user's, or this system does not show whose it is.
        """
        editor = editor_on(port)
        if editor is Editor.FOREIGN:
            raise _in_use(port, "another user")
        if editor is Editor.OWN:
            logger.info("port %d is in use: if that is a listening editor, the job will connect to it", port)
        elif self._trust_unknown:
            logger.warning("port %d is in use, and this system does not show by whom: the job will connect to it", port)
        else:
            raise LocalPortInUse(
                f"port {port} on this machine is in use, and this system does not show by whom",
                hint="if it is an editor of yours that is listening, add --listen; otherwise use other --ports",
            )

    def _is_reversible(self, local: LocalPort, lock: PortLock) -> bool:
        return self._may_reverse and lock.is_held and not local.destination.is_forward

    async def _listen(self, local: LocalPort) -> asyncio.Server:
        peers = PeerCheck(
            frozenset({own_user(), ROOT}), lambda sentence: logger.warning("port %d: %s", local.port, sentence)
        )

        def accepted(endpoint: LocalEndpoint) -> None:
            if not peers.allows(endpoint):
                return
            name = f"port {local.port} connection {next(self._numbers)}"
            carrying = carry(self._tunnels, local, name, endpoint, allow_terminate=self._allow_terminate)
            self._connections.spawn(carrying, name=name)

        return await listen_local(accepted, LOCAL_HOST, local.port)

    async def _reverse(self, port: int) -> None:
        try:
            await ReverseForwarder(self._tunnels, port, trust_unknown=self._trust_unknown).run()
        except RelayDebugError as error:
            logger.error("port %d: %s", port, error)


def _listen_error(port: int, error: OSError) -> RelayDebugError:
    if error.errno == errno.EADDRINUSE:
        return _in_use(port, "")
    if error.errno == errno.EACCES:
        return UsageError(f"port {port} needs administrator rights", hint="use ports from 1024 up")
    return LocalPortInUse(f"cannot listen on {LOCAL_HOST}:{port}: {error.strerror}", hint="use other --ports")


def _in_use(port: int, by: str) -> LocalPortInUse:
    return LocalPortInUse(
        f"port {port} on this machine is in use{f' by {by}' if by else ''}",
        hint="stop the other program (often an earlier relay-client), or use other --ports",
    )
