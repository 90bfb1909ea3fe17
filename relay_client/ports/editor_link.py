"""What relay-client adds to one editor's connection, whether the editor or the job has opened it.

    waiting_connection.py   an editor has connected to a local port, and may wait for its target
    listening_editors.py    the job has connected to an editor that listens

Both carry the bytes of the editor through its session (`relay_client.editor`). This module creates the snapshots of the
job for the session (`JobViews`), finds the job's script on this machine, compares source files, has the ranks answer
the commands of the debug console, and ends the connection with its last messages.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from relay_client.agents.event_log import name_with_node
from relay_client.agents.requests import send_request
from relay_client.agents.roster import Claim, Destination
from relay_client.agents.tunnels import Tunnels
from relay_client.compare.console import Command
from relay_client.editor.messages import JobView
from relay_client.editor.session import EditorSession
from relay_client.ports.connection_records import ConnectionRecord, Connections, PortLog
from relay_client.ports.local_port import LocalPort
from relay_client.ranks.view import replaced_text
from relay_client.ui.text import since_text
from relay_client.verbs.console import answer_as_text
from relay_core.agent_api.announcement import AgentId, AgentInfo, TargetInfo
from relay_core.agent_api.requests import Digest, FileDigest, stream_name
from relay_core.dap.messages import Request
from relay_core.errors import ConnectionLost, RelayDebugError
from relay_core.layers.layer import Layer, ToLocal
from relay_core.layers.stack import LayerStack
from relay_core.net.session.client import LinkState
from relay_core.net.session.stream import SessionStream, StreamBroken
from relay_core.net.streams.bridge import Bridge
from relay_core.net.streams.local_endpoint import LocalSide
from relay_core.net.tasks import TaskSet, first_completed
from relay_core.records import parse
from relay_core.tunnel.limits import MAX_TARGET_NAME
from relay_core.tunnel.outcomes import ResetCode

logger = logging.getLogger(__name__)


# Snapshots of the job behind a local port, created from the roster and the state of the tunnel.

AWAY = frozenset({LinkState.RECONNECTING, LinkState.SILENT})


class JobViews:
    """Creates the snapshots for one connection.

    Args:
        tunnels: The tunnels to the agents.
        destination: The destination of the connection.
    """

    def __init__(self, tunnels: Tunnels, destination: Destination) -> None:
        self._tunnels = tunnels
        self._port = destination.port
        self.agent_id: AgentId | None = None
        """The agent of the stream."""
        self._pid: int | None = None
        """The process that the stream leads to; it stays the same if another process takes the port later."""
        self._view = JobView(destination.port, tunnels.endpoint.path)

    def opened(self) -> None:
        """Record, before this is announced, whose stop the stream replaces that has just been opened."""
        if claim := self._owner():
            self._view = replace(self._view, replaced=replaced_text(claim.target))

    def connected(self) -> None:
        """Record that a stream to the owner of the port has just been opened."""
        if claim := self._owner():
            self.agent_id, self._pid = claim.agent.id, claim.target.pid

    def current(self) -> JobView:
        """Return what is currently known, or what was last known about a process that has exited."""
        claim = self._owner()
        is_running = claim is not None and (
            self.agent_id is None or (claim.agent.id, claim.target.pid) == (self.agent_id, self._pid)
        )
        is_unknown = claim is None and not self._view.label
        self._view = replace(
            self._view, is_running=is_running, other_ports=self._tunnels.roster.ports() if is_unknown else ()
        )
        if claim is not None and is_running:
            self._view = _described(self._view, claim.agent, claim.target)
        if self.agent_id is not None and (agent := self._tunnels.roster.agent(self.agent_id)):
            link = self._tunnels.link(self.agent_id)
            self._view = replace(
                self._view,
                away_reason=(link.reason or link.state.value) if link.state in AWAY else "",
                announces_endings=agent.endings is not None,
                ending=agent.ending(self._port, self._pid),
            )
        return self._view

    def _owner(self) -> Claim | None:
        return self._tunnels.roster.owner(self._port, time.time())


def _described(view: JobView, agent: AgentInfo, target: TargetInfo) -> JobView:
    attachment = target.attachment
    return replace(
        view,
        label=name_with_node(target, agent),
        is_alone=target.world in {None, 1},
        host=agent.host,
        cwd=target.cwd,
        script=target.script,
        pushes=target.pushes,
        is_stopped=bool(attachment and attachment.is_stopped),
        peer_timeout=target.peer_timeout,
        holder=f"held by {attachment.who}{since_text(attachment.since)}" if attachment else "",
    )


# Source files on this machine: the directory with a job's code, and files that differ from the job's files.
#
# Breakpoints that are set in a different version of a file stop the job at the wrong lines.

MAX_SOURCE = 4 * 1024 * 1024
"""Maximum size in bytes of a source file that is compared."""
TIMEOUT = 10.0
"""Seconds to wait for the agent's response; nothing is delayed in the meantime."""


def find_local_root(folder: str, script: str) -> str:
    """Return the editor's folder or the current directory, whichever contains the job's script; "" if neither does.

    Args:
        folder: The folder that the editor has opened, or "".
        script: A file name, or the name of a module.
    """
    if not script:
        return ""
    relative = Path(script) if script.endswith(".py") else Path(*script.split("."))
    if not relative.name:  # the job runs a directory, as in `python .`
        return ""
    for root in ([Path(folder)] if folder else []) + [Path.cwd()]:
        if any((root / each).exists() for each in (relative, relative.with_suffix(".py"))):
            return str(root)
    return ""


async def is_different(tunnels: Tunnels, agent_id: AgentId, port: int, local: str, remote: str) -> bool | None:
    """Return whether two files differ in more than their line endings; None if they cannot be compared.

    Args:
        tunnels: The client's tunnels.
        agent_id: The agent of the job.
        port: The logical port of the job.
        local: The file on this machine.
        remote: The file on the node, relative to the job's start directory if it is inside that directory.
    """
    request = Digest(port, remote)
    if len(stream_name(request).encode()) > MAX_TARGET_NAME:
        return None
    own = await asyncio.to_thread(_digest, Path(local))
    if not own:
        return None
    try:
        found = parse(FileDigest, await send_request(tunnels, agent_id, request, within=TIMEOUT)).sha256
    except RelayDebugError as error:  # the agent is of an earlier version, or serves only ports
        logger.debug("cannot compare %s with the job's file: %s", local, error)
        return None
    return found != own if found else None


def _digest(path: Path) -> str:
    try:
        if not path.is_file() or path.stat().st_size > MAX_SOURCE:
            return ""
        return FileDigest.of(path.read_bytes()).sha256
    except (OSError, ValueError):  # the file is not readable, or the path is invalid
        return ""


FAREWELL_TIMEOUT = 2.0
"""Seconds for an editor to close its side after the last messages; VS Code waits just as long for the response to
its `disconnect`."""


@dataclass(frozen=True)
class PortContext:
    """What the connections of all ports of a forwarder have in common."""

    tunnels: Tunnels
    """The tunnels to the agents."""
    connections: Connections
    """The list of the connections."""
    allow_terminate: bool = False
    """Whether an editor may terminate the job."""
    trust_unknown: bool = False
    """Whether the job may connect to a program even if this system does not show which user owns it, or if it is not
    debugpy's adapter."""


class EditorLink:
    """A connection of an editor, with its session and the tasks that keep it informed.

    Args:
        context: What the connections have in common.
        local: The local port, and where it leads.
        record: The record in which the state of the connection is noted.
        endpoint: The connection; closed at the end.
        log: The log of the port.
    """

    _listens = True
    """Whether the editor is listening and the job has connected to it."""

    def __init__(
        self, context: PortContext, local: LocalPort, record: ConnectionRecord, endpoint: LocalSide, log: PortLog
    ) -> None:
        self._tunnels = context.tunnels
        self._destination = destination = local.destination
        self._record, self._name = record, record.name
        self._endpoint = endpoint
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._views = JobViews(context.tunnels, destination)
        self.session = EditorSession(
            self._views.current(),
            self._loop.time(),
            allow_terminate=context.allow_terminate,
            listens=self._listens,
            find_root=find_local_root,
            on_source=self._check_source,
            on_question=self._ask_ranks,
        )
        self._checks = TaskSet()
        """Running comparisons of source files, and questions to all ranks."""
        self._bridge: Bridge | None = None
        """The bridge to the current stream or, if there is none, to the last one."""

    async def run(self, carrying: Awaitable[bool]) -> None:
        """Carry the connection until it ends, and show the editor why it has ended.

        Args:
            carrying: Carries all bytes; its result is False if the local side disconnected before there was a stream.
        """
        try:
            if await carrying:
                await self._endpoint.close()
                self._log.closed(self._record)
        except RelayDebugError as error:
            self._record.closed(end_reason(error))
            self._log.failed(self._name, error)
            if self._is_for_editors and not self._endpoint.is_gone:
                self.session.update(self._views.current(), self._loop.time())
                self._write_end(end_reason(error), may_return=_may_return(error))
                await self._answer_last()
            if self._is_for_editors or self._listens:
                await first_completed(self._endpoint.close(), timeout=FAREWELL_TIMEOUT)
        except asyncio.CancelledError:
            if self._is_for_editors:
                self._write_end(f"{self._record.why_cancelled}; the job continues without a debugger", may_return=False)
            if self._is_for_editors or self._listens:
                self._endpoint.write_eof()
            raise
        finally:
            self._endpoint.abort()

    async def _answer_last(self) -> None:
        """Answer the last request of an editor that has received the last messages."""

    @property
    def _is_for_editors(self) -> bool:
        return not (self._destination.is_forward or self.session.is_finished)

    def _editor(self) -> list[Layer]:
        """Return the layers next to the editor."""
        return [self.session] if self._is_for_editors else []

    async def carry_through(self, stream: SessionStream, stack: LayerStack) -> bool:
        """Carry the connection through one stream, and keep the session informed of changes; return True at the end.

        Raises:
            ConnectionLost: the connection on either side failed.
        """
        bridge = self._bridge = Bridge(self._endpoint, stream, stack, traffic=self._record.traffic)
        self._views.connected()
        self.session.has_stream = True
        try:
            try:
                async with self._checks:
                    await first_completed(bridge.run(), self._watch(bridge))
            finally:
                self.session.has_stream = False
            await stream.close()
        except asyncio.CancelledError:
            stream.abort(self._record.why_cancelled, code=ResetCode.CLOSED)
            raise
        except BaseException as error:
            stream.abort(error.sentence if isinstance(error, ConnectionLost) else "")
            raise
        return True

    def refused(self, text: str) -> None:
        """Show what the debugged process was not allowed to do."""
        logger.warning("%s: %s", self._name, text)
        self.session.show_refusal(text)
        if self._bridge is not None:
            self._loop.call_soon(self._bridge.refresh)  # the layers are being called at the moment

    def _write_end(self, reason: str, *, may_return: bool) -> None:
        """Write the last messages."""
        self.session.conclude(reason, may_return=may_return)
        for output in LayerStack(self._editor()).start(self._loop.time()):
            if isinstance(output, ToLocal):
                self._endpoint.write(output.data)

    async def _watch(self, bridge: Bridge) -> NoReturn:
        """Inform the session of changes."""
        while True:
            changed = self._tunnels.search.changed
            view = self._views.current()
            self._record.interrupted(is_interrupted=bool(view.away_reason))
            self.session.update(view, self._loop.time())
            bridge.refresh()
            await changed.wait()

    def _check_source(self, local: str, remote: str) -> None:
        if self._views.agent_id is not None and self._bridge is not None:
            checking = self._compare(self._views.agent_id, self._bridge, local, remote)
            self._checks.spawn(checking, name=f"{self._name}: compare a source file")

    async def _compare(self, agent_id: AgentId, bridge: Bridge, local: str, remote: str) -> None:
        found = await is_different(self._tunnels, agent_id, self._destination.port, local, remote)
        if found is not None:
            self.session.source_compared(local, is_different=found)
            bridge.refresh()

    def _ask_ranks(self, request: Request, question: Command) -> None:
        self._checks.spawn(self._show_answer(request, question), name=f"{self._name}: ask all ranks")

    async def _show_answer(self, request: Request, question: Command) -> None:
        self.session.outbox.answer_text(request, await answer_as_text(self._tunnels, question))
        if self._bridge is not None:
            self._bridge.refresh()


def end_reason(error: RelayDebugError) -> str:
    """Return the reason to show to the editor of a connection that has ended."""
    if not isinstance(error, ConnectionLost):
        return str(error)
    if isinstance(error, StreamBroken) or error.is_orderly:
        return error.reason
    return f"the connection to the agent was lost: {error.reason or error.sentence}"


def _may_return(error: RelayDebugError) -> bool:
    """True if a new connection to the port may succeed without any action by the user."""
    is_held = isinstance(error, StreamBroken) and error.reset is ResetCode.HELD
    is_orderly = isinstance(error, ConnectionLost) and error.is_orderly  # the agent's last process has exited
    return error.retryable and not is_held and not is_orderly
