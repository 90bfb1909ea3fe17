"""One end of an open WebSocket (RFC 6455), sans-IO: frames, ping and pong, the closing handshake, and liveness.

    bytes --receive_data--> Received(chunks, end)              send_* --> bytes for the socket
    time  --tick----------> is_dead, or a ping to be sent      data_to_send --> pings and pongs for the socket

Client and relay share it; each has a thin driver for its sockets. What the messages mean, and what follows a Close of
the peer, is up to the driver: a client answers it at once, a relay passes it on first.

Liveness: a peer that is silent for `ping_interval` gets a ping and `ping_timeout` to show life. It is not judged while
it is held up: while its bytes are not read (its pong may be waiting in line), or while it takes none (the ping has not
reached it). TCP notices if such a peer is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from relay_core.ws.frames import (
    CLOSE,
    PING,
    PONG,
    Chunk,
    Close,
    FrameDecoder,
    Ping,
    Violation,
    encode_chunks,
    encode_frame,
    encode_masked,
    encode_message,
)

__all__ = ["Received", "WebSocketMachine"]


class Received(NamedTuple):
    """What some bytes of the peer were."""

    chunks: list[Chunk]
    """Pieces of messages, in order."""
    end: Close | Violation | None
    """What came behind them and was the last: nothing after it is decoded."""


class WebSocketMachine:
    """See the module's docstring. All times are seconds of one clock.

    Args:
        now: When the connection was opened.
        ping_interval: Seconds of silence before a ping.
        ping_timeout: Seconds of silence after it.
        close_timeout: Seconds, after our Close, for the peer to end the connection; None if the driver limits that.
        new_mask: Returns 4 bytes that nobody could foresee, for each frame of a client; None for a server.
        extensions_agreed: Whether reserved bits may be set.
    """

    def __init__(
        self,
        *,
        now: float,
        ping_interval: float,
        ping_timeout: float,
        close_timeout: float | None = None,
        new_mask: Callable[[], bytes] | None = None,
        extensions_agreed: bool = False,
    ) -> None:
        self.close_sent: Close | None = None
        """Our Close; nothing may follow it."""
        self.close_received: Close | None = None
        """The peer's Close; it will send nothing else."""
        self.is_dead = False
        """Whether the peer has failed to show life, or to end the connection after our Close."""
        self._decoder = FrameDecoder(extensions_agreed=extensions_agreed, from_client=new_mask is None)
        self._new_mask = new_mask
        self._ping_interval = ping_interval
        self._ping_timeout = ping_timeout
        self._close_timeout = close_timeout
        self._close_deadline: float | None = None
        self._received_at = now
        self._silent_since = now
        """Like `_received_at`, or the last time at which the peer was held up."""
        self._pinged_at: float | None = None
        """When the ping was due whose answer is waited for."""
        self._ping_owed = False
        self._pong_owed: bytes | None = None

    def __repr__(self) -> str:
        closes = "".join(f" close-{what}" for what in ("sent", "received") if getattr(self, f"close_{what}"))
        return f"<WebSocketMachine {'dead' if self.is_dead else 'closing' if closes else 'open'}{closes}>"

    def receive_data(self, data: bytes | memoryview, now: float) -> Received:
        """Take bytes of the peer, which may be overwritten later; look at `data_to_send` then."""
        self._received_at = self._silent_since = now
        chunks: list[Chunk] = []
        end: Close | Violation | None = None
        for event in self._decoder.feed(data):
            if isinstance(event, Chunk):
                chunks.append(event)
            elif isinstance(event, Ping):
                # RFC 6455 5.5.3: only the latest ping needs an answer, so a peer that pings and does not read costs
                # us one pong.
                self._pong_owed = event.payload
            elif isinstance(event, (Close, Violation)):
                end = event
        if isinstance(end, Close):
            self.close_received = end
        return Received(chunks, end)

    def reading_resumed(self, now: float) -> None:
        """Note that the peer was not read until now, so its silence means nothing."""
        self._received_at = self._silent_since = now

    def send_message(self, opcode: int, payload: bytes) -> bytes:
        """Return one message as it goes over the wire; b"" after our Close."""
        if self.close_sent is not None:
            return b""
        if self._new_mask is None:
            return encode_message(opcode, payload)
        return encode_masked(opcode, payload, self._new_mask())

    def send_chunks(self, chunks: list[Chunk]) -> bytes:
        """Return a server's pieces of messages as they go over the wire; b"" after our Close."""
        return b"" if self.close_sent is not None else encode_chunks(chunks)

    def send_close(self, payload: bytes, now: float) -> bytes:
        """Return our Close, which ends our direction; b"" if there was one."""
        if self.close_sent is not None:
            return b""
        self.close_sent = Close(payload)
        if self._close_timeout is not None:
            self._close_deadline = now + self._close_timeout
        return self._control(CLOSE, payload)

    def data_to_send(self) -> bytes:
        """Return the ping and the pong that are owed; to be asked only while the peer takes bytes."""
        if self._pong_owed is None and not self._ping_owed:
            return b""  # nearly always
        pong, self._pong_owed = self._pong_owed, None
        ping, self._ping_owed = self._ping_owed, False
        if self.close_sent is not None:
            return b""
        return (b"" if pong is None else self._control(PONG, pong)) + (self._control(PING, b"") if ping else b"")

    def next_deadline(self) -> float:
        """Return when `tick` should be called; the peer's bytes put it off."""
        if self._close_deadline is not None:
            return self._close_deadline
        if self._pinged_at is not None:
            return self._pinged_at + self._ping_timeout
        return self._silent_since + self._ping_interval

    def tick(self, now: float, *, held_up: bool) -> None:
        """Note that time has passed; look at `is_dead` and `data_to_send` then.

        Args:
            now: The time.
            held_up: Whether the peer is not read from, or takes nothing, at the moment.
        """
        if now < self.next_deadline():
            return
        if self._close_deadline is not None:
            self.is_dead = True
            return
        held_up = held_up or self.close_sent is not None  # no ping may follow our Close
        if self._pinged_at is not None:
            if self._received_at < self._pinged_at and not held_up:
                self.is_dead = True
                return
            self._pinged_at = None
        if held_up:
            self._silent_since = now
        elif now >= self._silent_since + self._ping_interval:
            self._pinged_at, self._ping_owed = now, True

    def _control(self, opcode: int, payload: bytes) -> bytes:
        if self._new_mask is None:
            return encode_frame(opcode, payload)
        return encode_masked(opcode, payload, self._new_mask())
