"""Reverse connections: an editor listens on a local port, and the job connects to it. Also: whose program listens."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import re
import socket
from pathlib import Path

from relay_client.ports.connection_records import ConnectionRecord, PortLog
from relay_client.ports.editor_link import EditorLink, PortContext
from relay_client.ports.layers import RequestGuard
from relay_client.ports.local_port import LocalPort
from relay_client.prefetch import ResponseCache
from relay_core.agent_api.metadata import StreamMetadata
from relay_core.agent_api.requests import Failure, Listen
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConnectionLost, ProtocolError, RelayDebugError
from relay_core.foreign import printable
from relay_core.json_values import json_object
from relay_core.layers.layer import Layer
from relay_core.layers.stack import LayerStack
from relay_core.net.loopback import until_accepted
from relay_core.net.session.driver import SessionDriver
from relay_core.net.session.stream import SessionStream
from relay_core.net.streams.local_endpoint import connect_local
from relay_core.net.tasks import TaskSet, first_completed
from relay_core.records import parse, parse_or_none
from relay_core.socket_tables import LOOPBACK, OwnersNotShown, own_user, shared_tables
from relay_core.tunnel.events import StreamOpened
from relay_core.tunnel.outcomes import ResetCode

logger = logging.getLogger(__name__)


PROC = Path("/proc")
DEBUGPY = "debugpy"
"""The package in the command line of debugpy's adapter, with which every editor listens."""


def program_on(port: int) -> str:
    """Return the program that listens on a port, as in `python -m http.server (pid 4711)`; "" if unknown.

    Only Linux shows this, and only for processes of this user; for root, for all.
    """
    with contextlib.suppress(OSError):  # this is not Linux
        sockets = {f"socket:[{inode}]" for inode in shared_tables().listener_inodes(port)}
        processes = sorted((int(each.name) for each in PROC.iterdir() if each.name.isdecimal()), reverse=True)
        for pid in processes if sockets else ():
            if _has_one(pid, sockets) and (name := _name(pid)):
                return f"{name} (pid {pid})"
    return ""


def _has_one(pid: int, sockets: set[str]) -> bool:
    try:
        return any(str(each.readlink()) in sockets for each in (PROC / str(pid) / "fd").iterdir())
    except OSError:  # the process of another user, or one that has just closed a descriptor or exited
        return False


def _is_debugpy(text: str) -> bool:
    """Whether the package, or the command that it installs, is one of the words or one of the folders of a path."""
    return not {DEBUGPY, "debugpy-adapter"}.isdisjoint(re.split(r"[\s./]", text))


def _name(pid: int) -> str:
    """Return the program and its script or module; other arguments may be secrets."""
    with contextlib.suppress(OSError):
        program, *arguments = (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
        match arguments:
            case ["-m", module, *_]:
                words = [Path(program).name, "-m", module]
            case [script, *_] if script[:1] not in {"", "-"}:
                words = [Path(program).name, str(Path(*Path(script).parts[-2:]))]
            case _:
                words = [Path(program).name, *([DEBUGPY] if any(map(_is_debugpy, arguments)) else [])]
        return printable(" ".join(words))
    return ""


# The local ports on which editors listen.
#
# With a `listen` launch configuration, the editor listens on 127.0.0.1. The client finds that the port is in use, asks
# the port's agent to make the job connect, and carries each stream that the agent then opens to the editor. The editor
# must belong to this user: a debugger runs code in the job, so no other user's program may receive the job's
# connection. Nor may a program of this user that is not a debugger, such as a web server, unless the user insists
# (`--listen`): the job's debugger would start, and the rank would be held, for a program that does not know what to do.
# The client checks the listener before it sends the request, and the accepted connection before it carries any bytes.
#
#     FREE --port in use--> IN USE --an agent serves the port--> REQUESTED --last stream ended, editor closed--> FREE
#
# Why the port is polled, and by trying to bind it: no system reports that a port is in use, and to connect would look
# to the editor like the job's connection. A bind succeeds or fails without anybody noticing, once a second.
#
# Why the owner is checked twice: between the check of the listener and the connection, another user's program can take
# the port, and a check after the connection alone would make the job's debugger start for nobody. The second check is
# the one that protects: it concerns the process that has accepted.
#
# What is ugly: the client listens on a port or serves an editor that listens there, decided once when the port is
# opened. If the editor stops listening, the port stays reserved for it (`PortLock`), since the client cannot know
# whether it will listen again.

POLL_INTERVAL = 1.0
"""Seconds between checks of whether an editor is listening."""
REQUEST_INTERVAL = 2.0
"""Seconds between requests to the agent."""
REFUSED_INTERVAL = 15.0
"""Seconds to wait after a refused request; the cause rarely disappears unless the job changes."""
DIAL_TIMEOUT = 5.0
"""Seconds until a listening editor has accepted a connection."""
MAX_REFUSAL = 16 * 1024
"""Maximum number of bytes in the agent's response if the job cannot connect."""


class Listener(enum.Enum):
    """What is known about the program that is listening on a local port."""

    OWN = "of this user"
    OTHER = "of this user, but not debugpy's adapter"
    FOREIGN = "of another user"
    UNKNOWN = "this system does not show which user, or nothing is listening"


class ReverseForwarder:
    """Carries connections from a job to an editor that is listening.

    Args:
        context: What the connections have in common.
        local: The port on which the editor is listening, which is also the job's logical port.
        log: The log of the port.
    """

    def __init__(self, context: PortContext, local: LocalPort, log: PortLog) -> None:
        self._context = context
        self._tunnels = context.tunnels
        self._local, self._port = local, local.port
        self._log = log
        self._connections = context.connections
        self._waiting: ConnectionRecord | None = None
        """The record of the editor while it is listening and no job has connected."""
        self._streams = TaskSet()
        self._over = asyncio.Event()
        """Set when the editor has stopped listening, or its last connection has ended."""
        self._last_logged = ""

    async def run(self) -> None:
        """Serve the editor whenever it is listening, until no agent can be reached and waiting cannot help."""
        try:
            async with self._streams:
                with self._tunnels.accepting(self._port, self._accept):
                    while True:
                        await self._until_editor_listens()
                        refused = await self._serve()
                        await asyncio.sleep(REFUSED_INTERVAL if refused else REQUEST_INTERVAL)
        except RelayDebugError as error:
            logger.error("port %d: %s", self._port, error)
        finally:
            self._stop_waiting()

    async def _until_editor_listens(self) -> None:
        while not self._is_editor_listening():
            self._stop_waiting()
            await asyncio.sleep(POLL_INTERVAL)  # the operating system has no event for this
        if self._waiting is None:
            self._waiting = self._connections.add(self._port)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._connections.remove(self._waiting)
            self._waiting = None

    def _wait_for(self, reason: str) -> None:
        """Show why no job has connected to the editor yet."""
        if self._waiting is not None:
            self._waiting.waiting(reason)

    def _is_editor_listening(self) -> bool:
        try:
            if not is_in_use(self._port):
                return False
            listener = listener_on(self._port)
        except OSError as error:
            self._log_once(f"cannot determine which user's program is listening: {error.strerror}")
            return False
        is_trusted = listener is Listener.OWN or (listener is not Listener.FOREIGN and self._context.trust_unknown)
        if not is_trusted and listener is not Listener.UNKNOWN:
            whose = "another user's program" if listener is Listener.FOREIGN else program_on(self._port)
            self._log_once(f"{whose} is listening, so the job will not connect to it")
        return is_trusted

    async def _serve(self) -> bool:
        """Make the job connect, and wait until the editor has finished; return True if the job cannot connect."""
        wanted = self._local.destination
        agent_id = await self._tunnels.search.wait_for(
            lambda: self._tunnels.agent_for(wanted),
            lambda error: self._log_waiting(self._tunnels.unreachable_error(wanted, error)),
        )
        self._wait_for("the job has been asked to connect")
        self._over.clear()
        try:
            request = self._tunnels.open_request(agent_id, Listen(self._port))
            try:
                refused = await first_completed(self._until_refused(request), self._over.wait())
            finally:  # the tunnel may stay open when the port is closed
                await request.close()
        except ConnectionLost as lost:
            self._log_once(lost.reason or lost.sentence)
            return False
        return bool(refused) and not self._over.is_set()

    async def _until_refused(self, request: SessionStream) -> bool:
        """Wait until the agent closes the request, and log its reason; return True if the job cannot connect."""
        refused = False
        try:
            received = await request.read_all(MAX_REFUSAL, "the agent's response")
            failure = parse_or_none(Failure, json_object(received or b"{}", "the agent's response"), printable)
            why = failure.error if failure else ""
            refused = failure is not None
        except ConnectionLost as lost:
            why = lost.reason or lost.sentence
        except ProtocolError:
            why = "the agent sent an invalid response"
        if why:
            self._log_once(f"the job cannot connect to the editor: {why}")
            self._wait_for(f"the job cannot connect to the editor: {why}")
        return refused

    def _accept(self, driver: SessionDriver, stream: SessionStream, event: StreamOpened) -> None:
        prefetch = parse(StreamMetadata, event.metadata).prefetch
        connecting = self._connect(driver, stream, prefetch=prefetch)
        self._streams.spawn(connecting, name=f"connection of the job to port {self._port}")

    async def _connect(self, driver: SessionDriver, stream: SessionStream, *, prefetch: bool) -> None:
        """Connect one stream from the job to the editor."""
        try:
            async with timeout(DIAL_TIMEOUT):
                local = await connect_local(LOOPBACK, self._port)
                await until_accepted(local.transport, trust_unknown=self._context.trust_unknown)
        except (OSError, *TIMEOUT_ERRORS) as error:
            if isinstance(error, PermissionError):
                self._log_once(f"the job has not connected to the editor: {error}")
            driver.refuse(stream, ResetCode.UNREACHABLE, f"no editor is listening on port {self._port} any more")
            self._over.set()
            return
        driver.accept(stream)
        self._last_logged = ""
        logger.info("port %d: the job has connected to the editor", self._port)
        record, self._waiting = self._waiting or self._connections.add(self._port), None
        record.connected()
        try:
            # The local program is debugpy's adapter, which the editor has started. The adapter forwards relay-client's
            # events as it does the job's; after `terminated`, it ends the editor's session.
            link = EditorLink(self._context, self._local, record, local, self._log)
            layers: list[Layer] = [link.session, RequestGuard(None, link.refused), record.observer()]
            layers += [ResponseCache(is_adapter_local=True)] if prefetch else []
            await link.run(link.carry_through(stream, LayerStack(layers)))
        finally:
            self._connections.remove(record)
            if len(self._streams) == 1:  # this is the last stream
                self._over.set()

    def _log_waiting(self, error: RelayDebugError) -> None:
        self._log_once(f"waiting: {error}")
        self._wait_for(error.reason_to_wait)

    def _log_once(self, text: str) -> None:
        if text != self._last_logged:
            self._last_logged = text
            logger.warning("port %d: %s", self._port, text)


def is_in_use(port: int) -> bool:
    """True if a program is listening on a local port; checked without connecting to it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # servers usually set this option
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return True
    return False


def listener_on(port: int) -> Listener:
    """Return whose program is listening on a local port.

    Raises:
        OSError: that cannot be determined at the moment.
    """
    try:
        owners = shared_tables().listener_owners(port)
    except OwnersNotShown:
        owners = set()
    if not owners:
        return Listener.UNKNOWN
    if owners != {own_user()}:
        return Listener.FOREIGN
    program = program_on(port)
    return Listener.OWN if _is_debugpy(program) or not program else Listener.OTHER
