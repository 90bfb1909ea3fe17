"""State machine for one end of an open WebSocket (RFC 6455), sans-IO: frames, pings, closing handshake, liveness.

    bytes --receive_data--> chunks, end                        send_* --> bytes for the socket
    time  --tick----------> is_dead, or a ping to be sent      data_to_send --> pings and pongs for the socket

Client and relay both use it, each with a thin driver for its sockets. The driver interprets the messages and decides
how to respond to a Close from the peer: a client answers immediately, a relay forwards it first.

Liveness: a peer that sends nothing for `ping_interval` gets a ping, and is considered dead if it sends nothing for
another `ping_timeout`. This is suspended while the peer is held up: while its bytes are not being read (its pong may be
among them), or while it does not accept bytes (the ping has not reached it). TCP detects the loss of such a peer.

Why it is not the library's machine: docs/decisions/0009 has the figures. In short, a relay must forward a frame before
it is complete, must forward a Close before it answers it, and pings need deadlines, which a machine without a clock
cannot have.

What is ugly: liveness is suspended while the peer is held up, so a peer that vanishes just then is found only by TCP.
The alternative is worse: a receiver that does not read for a minute is normal (its program may stand at a breakpoint),
and a ping behind its unread bytes would end its connection.
"""

from __future__ import annotations

from collections.abc import Callable

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


class WebSocketMachine:
    """The protocol state of one connection. All times are in seconds of one monotonic clock.

    Args:
        now: When the connection was opened.
        ping_interval: Seconds without data from the peer before a ping is sent.
        ping_timeout: Seconds without data after that ping before the peer is considered dead.
        close_timeout: Seconds for the peer to end the connection after this end's Close.
        new_mask: Returns 4 unpredictable bytes for each frame of a client; None for a server.
        extensions_agreed: Whether reserved bits may be set on data frames.
    """

    def __init__(
        self,
        *,
        now: float,
        ping_interval: float,
        ping_timeout: float,
        close_timeout: float,
        new_mask: Callable[[], bytes] | None = None,
        extensions_agreed: bool = False,
    ) -> None:
        self.close_sent: Close | None = None
        """The Close that this end sent; no frame may follow it (RFC 6455 section 5.5.1)."""
        self.close_received: Close | None = None
        """The peer's Close; the peer sends no frame after it."""
        self.is_dead = False
        """True if the peer sent nothing after a ping, or did not end the connection after this end's Close."""
        self._decoder = FrameDecoder(extensions_agreed=extensions_agreed, from_client=new_mask is None)
        self._new_mask = new_mask
        self._ping_interval = ping_interval
        self._ping_timeout = ping_timeout
        self._close_timeout = close_timeout
        self._close_deadline: float | None = None
        self._received_at = now
        self._silent_since = now
        """Time of the last received data, or of the last time that the peer was held up, if that was later."""
        self._pinged_at: float | None = None
        """When the ping that awaits an answer became due."""
        self._ping_pending = False
        self._pong_pending: bytes | None = None
        """Payload of the pong to send."""

    def receive_data(self, data: bytes | memoryview, now: float) -> tuple[list[Chunk], Close | Violation | None]:
        """Decode bytes from the peer; call `data_to_send` after that. The caller may overwrite `data` later.

        Returns:
            Pieces of messages, in order, and the Close or violation after them, if any; nothing after it is decoded.
        """
        self._received_at = self._silent_since = now  # any data proves that the peer is alive, so pongs are ignored
        chunks: list[Chunk] = []
        end: Close | Violation | None = None
        for event in self._decoder.feed(data):
            if isinstance(event, Chunk):
                chunks.append(event)
            elif isinstance(event, Ping):
                # RFC 6455 section 5.5.3 allows an endpoint to answer only the latest ping. So for a peer that sends
                # pings and reads nothing, only one pong is kept.
                self._pong_pending = event.payload
            elif isinstance(event, (Close, Violation)):
                end = event
        if isinstance(end, Close):
            self.close_received = end
        return chunks, end

    def reading_resumed(self, now: float) -> None:
        """Restart the silence timer: the driver did not read from the peer until now."""
        self._received_at = self._silent_since = now

    def send_message(self, opcode: int, payload: bytes, *, fin: bool = True) -> bytes:
        """Return the encoded message, or, if `fin` is False, a client's part of it; b"" after this end's Close."""
        if self.close_sent is not None:
            return b""
        if self._new_mask is None:
            return encode_message(opcode, payload)
        return encode_masked(opcode, payload, self._new_mask(), fin=fin)

    def send_chunks(self, chunks: list[Chunk]) -> bytes:
        """Return a server's pieces of messages, encoded without a mask; b"" after this end's Close."""
        return b"" if self.close_sent is not None else encode_chunks(chunks)

    def send_close(self, payload: bytes, now: float) -> bytes:
        """Return the encoded Close, which ends the direction to the peer; b"" if a Close was sent before."""
        if self.close_sent is not None:
            return b""
        self.close_sent = Close(payload)
        # Section 7.1.1: the server closes the TCP connection first. A client needs a limit for a server that does not
        # close it.
        self._close_deadline = now + self._close_timeout
        return self._control(CLOSE, payload)

    def data_to_send(self) -> bytes:
        """Return the pending ping and pong, encoded; call it only while the peer accepts bytes."""
        if self._pong_pending is None and not self._ping_pending:
            return b""  # nearly always
        pong, self._pong_pending = self._pong_pending, None
        ping, self._ping_pending = self._ping_pending, False
        if self.close_sent is not None:
            return b""
        return (b"" if pong is None else self._control(PONG, pong)) + (self._control(PING, b"") if ping else b"")

    def next_deadline(self) -> float:
        """Return when to call `tick`; received data can postpone it."""
        if self._close_deadline is not None:
            return self._close_deadline
        if self._pinged_at is not None:
            return self._pinged_at + self._ping_timeout
        return self._silent_since + self._ping_interval

    def tick(self, now: float, *, held_up: bool) -> None:
        """Handle the passage of time; check `is_dead` and call `data_to_send` after that.

        Args:
            now: The current time.
            held_up: True if the driver is not reading from the peer, or the peer does not accept bytes.
        """
        if now < self.next_deadline():
            return
        if self._close_deadline is not None:
            self.is_dead = True
            return
        held_up = held_up or self.close_sent is not None  # no ping may follow this end's Close (section 5.5.1)
        if self._pinged_at is not None:
            if self._received_at < self._pinged_at and not held_up:
                self.is_dead = True
                return
            self._pinged_at = None  # any data counts as an answer: a busy peer may send its pong late
        if held_up:
            self._silent_since = now
        elif now >= self._silent_since + self._ping_interval:
            self._pinged_at, self._ping_pending = now, True

    def _control(self, opcode: int, payload: bytes) -> bytes:
        if self._new_mask is None:
            return encode_frame(opcode, payload)
        return encode_masked(opcode, payload, self._new_mask())
