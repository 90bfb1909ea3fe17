"""Senders that are waiting for a listener, and a listener's WebSocket for one HTTP request."""

from __future__ import annotations

import asyncio
import hmac
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from relay_core.hyco.http import Response
from relay_core.hyco.messages import MAX_CONTROL_BYTES
from relay_core.ws.frames import CONTINUATION, TEXT, Chunk, close_payload
from relay_server.config.model import Limits
from relay_server.connection.request_reader import Handshake
from relay_server.connection.tcp import Connection
from relay_server.connection.websocket import Owner, WebSocket
from relay_server.metrics import EntityMetrics
from relay_server.protocol.refusals import Refusal, bad_response
from relay_server.protocol.requests import RelayRequest, guid_of, new_guid, tracking_id

# Relaying between a sender and a listener.
#
# Messages keep their type and boundaries; frames may be split differently. The two directions end independently:
#
#   * a Close frame from one side is sent to the other with the same code and reason and ends only that direction; the
#     other direction continues until its own Close frame, but at most for `close_timeout`;
#   * if a side disconnects without a Close frame, the other connection is dropped without one too, so that its peer
#     detects a lost connection rather than an orderly close;
#   * if a side disconnects after its Close frame, the other side can complete its closing handshake;
#   * if a side is slow, reading from the other side is paused, so that the relay buffers a bounded number of bytes.
#
# Why frames are decoded at all, instead of passing bytes on: both sides are clients of the relay. Each masks what it
# sends, and must receive unmasked frames (RFC 6455, 5.1), so every byte has to be changed once. Whole messages are not
# needed for that, and Azure passes on messages of any length; decision 0009 has the figures.
#
# Why a direction can end alone: a listener that answers one request and closes would otherwise cut off what is still on
# its way to it. The price is a connection that is half closed for a while, which `websockets`, for example, does not
# have (it answers a Close at once), and a time limit for it, since the other side may never answer.
#
# Invariant: what one pair can occupy is about two write buffers of `WRITE_HIGH_WATER`, because a side that does not
# read stops the reading from the other one. What one read has returned is still written then; to hold it back would
# need a queue, which is what the write buffer is.


class RelayedPair(Owner):
    """The two WebSockets of a rendezvous, relayed to each other.

    Args:
        sender: The sender's connection, after the 101 response.
        listener: The connection that the listener opened for this sender, after the 101 response.
        extensions_agreed: True if a WebSocket extension was negotiated.
        limits: Timers.
        counters: Those of the hybrid connection.
        ended: Called once, when both connections are closed.
    """

    def __init__(
        self,
        sender: Connection,
        listener: Connection,
        *,
        extensions_agreed: bool,
        limits: Limits,
        counters: EntityMetrics,
        ended: Callable[[RelayedPair], None],
    ) -> None:
        self.sender, self.listener = (
            WebSocket(connection, self, limits, extensions_agreed=extensions_agreed)
            for connection in (sender, listener)
        )
        self.counters = counters
        self.bytes_to_listener = 0
        self.bytes_to_sender = 0
        """Payload of data messages."""
        self._ended = ended
        self._open = {self.sender, self.listener}

    def start(self, from_sender: bytes, from_listener: bytes) -> None:
        """Relay the bytes that were received before the 101 responses."""
        self.sender.received(memoryview(from_sender))
        self.listener.received(memoryview(from_listener))

    def close(self, code: int, reason: str) -> None:
        """Close both directions on behalf of the relay."""
        for websocket in (self.sender, self.listener):
            websocket.send_close(close_payload(code, reason))
        self._finish()

    # Events of the two WebSockets:

    def chunks_received(self, websocket: WebSocket, chunks: list[Chunk]) -> None:
        """Count and relay parts of messages."""
        size = sum(len(chunk.payload) for chunk in chunks)
        if websocket is self.sender:
            self.bytes_to_listener += size
            self.counters.bytes_to_listeners += size
        else:
            self.bytes_to_sender += size
            self.counters.bytes_to_senders += size
        # The flow is bounded by `writing_paused`: chunks are written even while the other side is slow.
        self._other(websocket).send_chunks(chunks)

    def close_received(self, websocket: WebSocket, payload: bytes) -> None:
        """Relay the end of one direction."""
        self._other(websocket).send_close(payload)
        self._finish()

    def writing_paused(self, websocket: WebSocket) -> None:
        """Pause reading from the other side."""
        self._other(websocket).connection.pause_reading()

    def writing_resumed(self, websocket: WebSocket) -> None:
        """Resume reading from the other side."""
        self._other(websocket).connection.resume_reading()

    def lost(self, websocket: WebSocket) -> None:
        """Drop the other side too, unless this one has sent a Close frame."""
        self._open.discard(websocket)
        other = self._other(websocket)
        if not websocket.close_received:
            # A Close frame made up here would make a lost connection look like one that was closed on purpose.
            other.connection.abort()
        else:
            other.connection.resume_reading()  # it was paused for the other side; its Close frame must be read
        if not self._open:
            self._ended(self)

    def _other(self, websocket: WebSocket) -> WebSocket:
        return self.listener if websocket is self.sender else self.sender

    def _finish(self) -> None:
        """Close each connection whose closing handshake is complete (RFC 6455, 7.1.1: the server closes TCP first)."""
        for websocket in (self.sender, self.listener):
            if websocket.close_sent and websocket.close_received:
                websocket.connection.close()


# A listener's WebSocket for one HTTP request: reading and writing with back-pressure, instead of callbacks.

UNREAD_HIGH = 256 * 1024
"""Bytes that wait for a slow sender before reading from the listener is paused."""


class HttpRendezvous(Owner):
    """A listener's connection to the address of an HTTP request.

    Args:
        connection: The connection, after the 101 response.
        limits: Timers.
    """

    def __init__(self, connection: Connection, *, limits: Limits) -> None:
        self._websocket = WebSocket(connection, self, limits)
        self._connection = connection
        self._chunks: deque[Chunk] = deque()
        self._unread = 0
        self._is_lost = False
        self._readable = asyncio.Event()

    # Called by the exchange:

    def start(self, early: bytes) -> None:
        """Process bytes that were received before the 101 response."""
        self._websocket.received(memoryview(early))

    async def read(self) -> Chunk | None:
        """Return the next piece of a message; None after the listener's Close frame.

        Raises:
            Refusal: 502, the connection was lost.
        """
        while not self._chunks:
            if self._websocket.close_received:
                return None
            if self._is_lost:
                raise bad_response()
            self._readable.clear()
            await self._readable.wait()
        chunk = self._chunks.popleft()
        self._unread -= len(chunk.payload)
        if self._unread < UNREAD_HIGH // 2:
            self._connection.resume_reading()
        return chunk

    async def read_text(self) -> str:
        """Return the next text message.

        Raises:
            Refusal: 502, the connection was lost, or the next message is too long or not a text.
        """
        message = bytearray()
        while (chunk := await self.read()) is not None:
            message += chunk.payload
            if (chunk.opcode not in {TEXT, CONTINUATION}) or len(message) > MAX_CONTROL_BYTES:
                break
            if chunk.fin:
                return message.decode(errors="replace")
        raise bad_response()

    async def send_text(self, message: str) -> None:
        """Send a text message."""
        self._websocket.send_message(TEXT, message.encode())
        await self._drain()

    async def send(self, chunk: Chunk) -> None:
        """Send a piece of a binary message; return when the listener can receive more.

        Raises:
            Refusal: 502, the connection was lost.
        """
        self._websocket.send_chunks([chunk])
        await self._drain()

    def close(self) -> None:
        """Close the connection; a rendezvous is used for only one request."""
        # The official listeners do not expect a second request on the same connection, and one of them ignores it.
        self._websocket.send_close(close_payload(1000))
        if self._websocket.close_received:
            self._connection.close()
        self._connection.resume_reading()

    def abort(self) -> None:
        """Drop the connection, because the request failed."""
        self._connection.abort()

    async def _drain(self) -> None:
        await self._connection.drain()
        if self._is_lost:
            raise bad_response()

    # Events of the WebSocket:

    def chunks_received(self, websocket: WebSocket, chunks: list[Chunk]) -> None:  # noqa: ARG002 - there is one
        """Keep the pieces for the sender."""
        if self._websocket.close_sent:  # the response is complete
            return
        self._chunks.extend(chunks)
        self._unread += sum(len(chunk.payload) for chunk in chunks)
        if self._unread > UNREAD_HIGH:
            self._connection.pause_reading()
        self._readable.set()

    def close_received(self, websocket: WebSocket, payload: bytes) -> None:  # noqa: ARG002 - the answer has its own code
        """Note the end of the listener's messages."""
        self._readable.set()
        if websocket.close_sent:
            self._connection.close()

    def lost(self, websocket: WebSocket) -> None:  # noqa: ARG002 - there is one
        """Wake the task that is reading."""
        self._is_lost = True
        self._readable.set()


# Senders that are waiting for a listener.
#
# A pending sender is identified by the GUID of its request and a secret of 128 bits. Both are in the address that is
# sent to one listener and are the only credential of its accept request. An address can be used once, and only while
# its sender is waiting.


@dataclass(frozen=True)
class Rejection:
    """A listener's rejection of a sender."""

    status: int
    reason: str


@dataclass(frozen=True)
class ControlResponse:
    """A listener's response to an HTTP request, sent on its control channel."""

    response: Response
    body: bytes = field(repr=False)


Outcome: TypeAlias = Rejection | Refusal | ControlResponse | HttpRendezvous | None


@dataclass(frozen=True, eq=False)
class PendingSender:
    """A sender whose request is not answered yet."""

    id: str
    """`GUID_G0`, as in the accept message."""
    secret: str = field(repr=False)
    request: RelayRequest
    handshake: Handshake
    outcome: asyncio.Future[Outcome]
    """The result; None if a listener has accepted and relaying has started."""


class Rendezvous:
    """All pending senders.

    Args:
        new_secret: Returns 128 random bits as hex.
    """

    def __init__(self, *, new_secret: Callable[[], str]) -> None:
        self._pending: dict[str, PendingSender] = {}
        self._new_secret = new_secret

    def __len__(self) -> int:
        return len(self._pending)

    def open(self, request: RelayRequest, handshake: Handshake) -> PendingSender:
        """Add a sender, under its own id unless another sender is waiting with the same id."""
        identity = request.tracking
        if self._key(identity) in self._pending:
            identity = tracking_id(new_guid())
        pending = PendingSender(
            id=identity,
            secret=self._new_secret(),
            request=request,
            handshake=handshake,
            outcome=asyncio.get_running_loop().create_future(),
        )
        self._pending[self._key(identity)] = pending
        return pending

    def take(self, identity: str | None, secret: str | None) -> PendingSender | None:
        """Remove and return the sender with this id and secret, or return None."""
        key = self._key(identity)
        pending = self._pending.get(key)
        # The id alone does not authenticate a listener: the sender may have chosen it.
        if pending is None or not hmac.compare_digest(pending.secret.encode(), (secret or "").encode()):
            return None
        del self._pending[key]
        return pending

    def refuse_all(self, refusal: Refusal) -> None:
        """Refuse all senders with the same error."""
        waiting = list(self._pending.values())
        self._pending.clear()
        for pending in waiting:
            if not pending.outcome.done():
                pending.outcome.set_result(refusal)

    def forget(self, pending: PendingSender) -> None:
        """Make the address of a sender invalid, unless a listener has used it."""
        key = self._key(pending.id)
        if self._pending.get(key) is pending:
            del self._pending[key]

    @staticmethod
    def _key(identity: str | None) -> str:
        return (guid_of(identity) or "").lower()
