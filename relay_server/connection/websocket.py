"""One upgraded connection: frames in and out, ping and pong, and at most one Close in each direction.

What the messages mean is its owner's business: a control channel reads them, a relayed pair passes them on.

Liveness: a peer that is silent for `ping_interval` gets a ping and `ping_timeout` to show life, then it is dropped.
A peer is not judged while its bytes are not being read (its pong may be waiting in line) or while it takes none
(the ping has not reached it): TCP itself notices if such a peer is gone.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from relay_core.ws.frames import (
    CLOSE,
    PING,
    PONG,
    Chunk,
    Close,
    FrameDecoder,
    Ping,
    Violation,
    close_payload,
    encode_chunks,
    encode_frame,
    encode_message,
)
from relay_server.connection.tcp import Connection

__all__ = ["Owner", "WebSocket"]

logger = logging.getLogger(__name__)


class Owner(Protocol):
    """Gets what happens on a websocket."""

    def chunks_received(self, websocket: WebSocket, chunks: list[Chunk]) -> None:
        """Pieces of data messages came."""

    def close_received(self, websocket: WebSocket, payload: bytes) -> None:
        """The peer sent its Close; it will send nothing else."""

    def writing_paused(self, websocket: WebSocket) -> None:
        """The peer takes less than it is given."""

    def writing_resumed(self, websocket: WebSocket) -> None:
        """The peer has caught up."""

    def lost(self, websocket: WebSocket) -> None:
        """The connection is gone, or about to go because the peer broke the protocol; said once."""


class WebSocket:
    """The handler of a connection after its 101.

    Args:
        connection: Answered with 101 already.
        owner: Gets the events.
        extensions_agreed: Whether reserved bits may be set.
        ping_interval: Seconds of silence before a ping.
        ping_timeout: Seconds of silence after it.
    """

    def __init__(
        self,
        connection: Connection,
        owner: Owner,
        *,
        extensions_agreed: bool = False,
        ping_interval: float,
        ping_timeout: float,
    ) -> None:
        self.connection = connection
        self.close_sent = False
        self.close_received = False
        self.bytes_received = 0
        """Payload of data messages."""
        self._owner = owner
        self._decoder = FrameDecoder(extensions_agreed=extensions_agreed)
        self._ping_interval = ping_interval
        self._ping_timeout = ping_timeout
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()
        self._lost = False
        self._pong_owed: bytes | None = None
        self._timer = self._loop.call_later(ping_interval, self._check_silence)
        connection.handler = self

    def __repr__(self) -> str:
        closes = "".join(f" close-{what}" for what in ("sent", "received") if getattr(self, f"close_{what}"))
        return f"<WebSocket {self.connection!r}{closes}>"

    # What the owner does:

    def send_chunks(self, chunks: list[Chunk]) -> None:
        """Send pieces of messages, in one write."""
        if not self.close_sent:
            self.connection.write(encode_chunks(chunks))

    def send_message(self, opcode: int, payload: bytes) -> None:
        """Send one message."""
        if not self.close_sent:
            self.connection.write(encode_message(opcode, payload))

    def send_close(self, payload: bytes) -> None:
        """End our direction; the connection stays for the peer's."""
        if not self.close_sent:
            self.connection.write(encode_frame(CLOSE, payload))
            self.close_sent = True

    def fail(self, code: int, reason: str) -> None:
        """Say why and hang up, without waiting for the peer."""
        self.send_close(close_payload(code, reason))
        self.connection.close()

    # What the connection does:

    def received(self, data: memoryview) -> None:
        """Decode and hand over."""
        self._heard_at = self._loop.time()
        if self.close_received:
            return
        chunks: list[Chunk] = []
        last: Close | Violation | None = None
        for event in self._decoder.feed(data):
            if isinstance(event, Chunk):
                chunks.append(event)
                self.bytes_received += len(event.payload)
            elif isinstance(event, Ping):
                self._answer_ping(event.payload)
            elif isinstance(event, (Close, Violation)):
                last = event
        if chunks:
            self._owner.chunks_received(self, chunks)
        if isinstance(last, Close):
            self.close_received = True
            self._owner.close_received(self, last.payload)
        elif isinstance(last, Violation):
            logger.info("%s:%d broke the protocol: %s", *self.connection.remote, last.reason)
            self.fail(last.code, last.reason)
            self.lost()

    def writing_paused(self) -> None:
        """Tell the owner."""
        self._owner.writing_paused(self)

    def writing_resumed(self) -> None:
        """Tell the owner, and send the pong that had to wait."""
        if self._pong_owed is not None:
            self._answer_ping(self._pong_owed)
        self._owner.writing_resumed(self)

    def lost(self) -> None:
        """Tell the owner, once."""
        self._timer.cancel()
        if not self._lost:
            self._lost = True
            self._owner.lost(self)

    def _answer_ping(self, payload: bytes) -> None:
        # A peer that pings and does not read would make us store pongs; RFC 6455 5.5.3 wants the latest one only.
        if self.connection.writing_paused:
            self._pong_owed = payload
            return
        self._pong_owed = None
        if not self.close_sent:
            self.connection.write(encode_frame(PONG, payload))

    def _check_silence(self) -> None:
        due = self._heard_at + self._ping_interval
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._check_silence)
        elif self._is_held_up():
            self._timer = self._loop.call_later(self._ping_interval, self._check_silence)
        else:
            self.connection.write(encode_frame(PING, b""))
            self._timer = self._loop.call_later(self._ping_timeout, self._check_life, self._loop.time())

    def _check_life(self, pinged_at: float) -> None:
        if self._heard_at >= pinged_at or self._is_held_up():
            self._check_silence()
            return
        logger.info("%s:%d does not answer a ping: dropped", *self.connection.remote)
        self.connection.abort()

    def _is_held_up(self) -> bool:
        # After our Close no ping may follow; the owner limits how long the peer's Close may take.
        return self.close_sent or self.connection.reading_paused or self.connection.buffered > 0
