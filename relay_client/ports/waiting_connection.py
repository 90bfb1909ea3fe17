"""One connection to a local port, from accept to close.

    WAITING for an agent --stream opened--> CARRYING --both directions have ended--> closed
       ^       |                              |  |
       |   the local side disconnected        |  +--> refused for good: held by another user, or nothing is listening
       +-- the target has exited, unanswered -+

Bytes from the local side are kept until the target sends its first byte (`relay_client.ports.layers`).
Until then, they can be sent again if the target exits, for example because the job was restarted.

A stream to a process holds that process for its user. So it is opened only once the local program has sent bytes of the
Debug Adapter Protocol; no web page or port scan can hold a process.

An editor is informed of each state (`relay_client.editor`). While its connection has no stream, its bytes take the same
path, but to a stream that discards them.

Why connections are accepted before there is a target: otherwise an editor whose job has not started yet reports that
the connection was refused, and the user has to guess when to try again. Accepting and not reading is not enough:
neither the end of the local side nor an editor's first request would be noticed, so nothing could be explained to it.
Hence the `DiscardingStream`: with it, a waiting connection takes the same path through the same layers, instead of a
second implementation of "what an editor is answered" for the time without a stream.

Why the target's first byte is the point of no return: until then, nobody has acted on an answer of the target, so a
target that exits can be replaced by another one without the local program noticing. Answers that relay-client itself
has given (`AttachAnswers`) do not count: the same requests are sent again, and the new debugger's responses are
compared with those answers. Later, two targets would each have a part of one conversation.

Invariants: `changed` is taken before each attempt, so a change during the attempt ends the wait that follows. One
splitter for the whole life of the connection, because streams can change inside a message. A stream is carried only
after `_hold` has ended, since both read the local side.

What is ugly: every end of a connection has to be attributed to one side, because only the target's is retried
(`_retry_reason`): a lost stream, an editor that has left and a refusal all arrive as exceptions of the same call. If
the tunnel's session ends after a program other than an editor has sent bytes, nothing is retried, as those bytes may
have had effects.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools

from relay_client.agents.search import RETRY_DELAYS
from relay_client.editor.attach_answers import AttachAnswers
from relay_client.ports.connection_records import ConnectionRecord, PortLog
from relay_client.ports.editor_link import FAREWELL_TIMEOUT, EditorLink, PortContext
from relay_client.ports.layers import EarlyBytes, RequestGuard
from relay_client.ports.local_port import LocalPort
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.dap.framing import HEADER_START
from relay_core.errors import ConnectionLost, ProtocolError, RelayDebugError
from relay_core.layers.layer import Layer, ToPeer
from relay_core.layers.piece import MessageSplitter
from relay_core.layers.stack import LayerStack
from relay_core.net.session.stream import SessionStream, StreamBroken
from relay_core.net.streams.bridge import Bridge, PeerHandler
from relay_core.net.streams.local_endpoint import LocalSide
from relay_core.net.tasks import first_completed
from relay_core.tunnel.outcomes import ResetCode

# The stream of a connection that is waiting for a target: it discards the bytes, because a layer has kept them.

MAX_SENT = 64 * 1024
"""Number of bytes after which the sender is paused; an editor sends a few hundred before it receives an answer."""


class DiscardingStream:
    """A `PeerStream` without a peer."""

    def __init__(self) -> None:
        self._handler: PeerHandler | None = None
        self._sent = 0

    def deliver_to(self, handler: PeerHandler) -> None:
        """Set the handler, which is paused once it has sent `MAX_SENT` bytes."""
        self._handler = handler
        self.send(b"")

    def detach(self) -> None:
        """Remove the handler."""
        self._handler = None

    def send(self, data: bytes) -> None:
        """Discard bytes."""
        self._sent += len(data)
        if self._sent >= MAX_SENT and self._handler is not None:
            self._handler.peer_writing_paused()

    def send_eof(self) -> None:
        """Do nothing."""

    def pause_reading(self) -> None:
        """Do nothing."""

    def resume_reading(self) -> None:
        """Do nothing."""

    def abort(self, reason: str = "") -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""


GONE = frozenset({ResetCode.GONE, ResetCode.UNKNOWN_TARGET, ResetCode.NOT_ALLOWED, ResetCode.LIMIT})
"""Refusals after which another attempt may succeed. Streams are opened only to announced ports, so a port that turns
out not to be served has just been removed."""

FIRST_BYTES_TIMEOUT = 30.0
"""Timeout in seconds for the first request to a process; VS Code sends it immediately."""
NOT_DAP = "only programs that use the Debug Adapter Protocol can connect to a process"


class WaitingConnection(EditorLink):
    """Connects a local connection to the destination of its port, and waits for its target if necessary.

    Args:
        context: What the connections have in common.
        local: The local port that accepted the connection.
        record: The record in which the state of the connection is noted.
        endpoint: The connection; closed at the end.
        log: The log of the port.
    """

    _listens = False

    def __init__(
        self, context: PortContext, local: LocalPort, record: ConnectionRecord, endpoint: LocalSide, log: PortLog
    ) -> None:
        super().__init__(context, local, record, endpoint, log)
        self._answers = AttachAnswers()
        self._first: asyncio.Future[bytes] = self._loop.create_future()
        """The first bytes from the local program."""
        self._early = EarlyBytes(self._connected, self._first.set_result)
        self._from_local = MessageSplitter(ToPeer)
        """One splitter for all streams of this connection, because a message may arrive while no stream is open."""

    async def carry(self) -> None:
        """Carry the connection until it ends, and show an editor why it has ended."""
        await self.run(self._carry())

    async def _carry(self) -> bool:
        """Retry until a target answers, then carry all bytes; return False if the local side disconnected first."""
        self._log.happened(self._name, "accepted")
        for delay in itertools.chain(RETRY_DELAYS, itertools.repeat(RETRY_DELAYS[-1])):
            changed = self._tunnels.search.changed
            why = await self._attempt()
            if why is None and self._early.is_finished:
                return True
            if why is None:
                break
            self._log_waiting(why)
            await first_completed(self._hold(), self._endpoint.ended.wait(), changed.wait(), timeout=delay)
            if self._endpoint.ended.is_set() or self.session.has_left:
                break
        self._log.happened(self._name, "disconnected before an agent was available")
        return False

    async def _answer_last(self) -> None:
        """Answer the last request of the editor."""
        await first_completed(self._hold(), self._endpoint.ended.wait(), timeout=FAREWELL_TIMEOUT)

    async def _attempt(self) -> RelayDebugError | None:
        """Carry the connection through one stream; return the reason for another attempt, or None if it has ended.

        Raises:
            RelayDebugError: waiting cannot help, or the stream was lost after the target had answered.
        """
        try:
            opened = await first_completed(self._open(), self._hold(), discard=self._discard)
        except RelayDebugError as error:
            if not error.retryable:
                raise
            return error
        if not isinstance(opened, tuple):
            return None  # the local side disconnected
        try:
            await self._carry_target(*opened)
        except RelayDebugError as error:
            return self._retry_reason(error)
        return None

    async def _open(self) -> tuple[SessionStream, list[Layer]]:
        """Return a stream, once there is an agent and, if the stream leads to a process, a debugger.

        Raises:
            ProtocolError: the local program is not a debugger.
            RelayDebugError: for the same reasons as in `Tunnels.open`.
        """
        destination = self._destination
        await self._tunnels.wait_for(destination)
        if self._tunnels.process_at(destination) is not None:
            try:
                async with timeout(FIRST_BYTES_TIMEOUT):
                    first = await asyncio.shield(self._first)
            except TIMEOUT_ERRORS:
                first = b""
            if not first.startswith(HEADER_START):
                raise ProtocolError(NOT_DAP)
        opened = await self._tunnels.open_for(destination)
        self._views.opened()
        return opened

    def _discard(self, opened: object) -> None:
        if isinstance(opened, tuple):  # by `_open`, in the moment in which this connection was cancelled
            opened[0].abort(self._record.why_cancelled, code=ResetCode.CLOSED)

    async def _carry_target(self, stream: SessionStream, layers: list[Layer]) -> None:
        if not self._destination.is_forward:
            guard = RequestGuard(self._record.port, self.refused, lambda: self.session.attach.sent)
            layers = [guard, self._record.observer(), *layers]
        self._answers.is_debugpy = self._tunnels.leads_to_debugpy(self._destination)
        self._early.has_stream = True
        self.session.wait_for("the debugger is starting", self._loop.time())
        try:
            await self.carry_through(stream, LayerStack([*self._editor(), self._early, *layers], self._from_local))
        finally:
            self._answers.is_debugpy = self._early.has_stream = False

    async def _hold(self) -> bool:
        """Keep the local side's bytes until it disconnects, and show an editor why it is waiting; return True."""
        stack = LayerStack([*self._editor(), self._early], self._from_local)
        bridge = Bridge(self._endpoint, DiscardingStream(), stack, traffic=self._record.traffic)
        with contextlib.suppress(ConnectionLost):
            await bridge.run()
        return True

    def _editor(self) -> list[Layer]:
        """Return the layers next to the editor."""
        answers = [self._answers] if self._is_for_editors and not self._answers.is_finished else []
        return [*answers, *super()._editor()]

    def _connected(self) -> None:
        self._log.connected(self._name)
        self._record.connected()

    def _log_waiting(self, why: RelayDebugError) -> None:
        reason = why.reason_to_wait
        self.session.wait_for(reason, self._loop.time())
        if reason != self._record.reason:
            self._log.waiting(self._name, why)
            self._record.waiting(reason)

    def _retry_reason(self, error: RelayDebugError) -> RelayDebugError | None:
        """Return the reason to retry after an error, or None if the local side disconnected before it got an answer.

        Raises:
            RelayDebugError: the error, if another attempt cannot help.
        """
        if self._early.is_finished:
            raise error
        if isinstance(error, StreamBroken):
            if error.reset in GONE:
                return error
        elif self._endpoint.is_gone or (self._endpoint.ended.is_set() and not self._early):
            return None
        elif error.retryable and (not self._early or self.session.is_editor):  # `initialize` can be repeated
            return error
        raise error
