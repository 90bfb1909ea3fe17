"""A stream of a session, which outlives transports and has its own half-close and flow control.

It passes received bytes to its handler if there is one (`PeerStream`), and buffers them for `read` otherwise
(`ByteStream`). Credit returns to the peer when the handler has received the bytes, or at the next `read`, when the
reader has processed them. A slow consumer therefore stops its peer after one window.

Why two ways to read: a debugger's connection needs its bytes in the call that receives them, because a task switch at
each end is a measurable part of a round trip (`driver`), and requests need `await stream.read()`, because a protocol of
question and answer written as callbacks is a state machine of its own. Both share the buffer, so a stream can change
from one to the other in the middle: the agent reads the first bytes of a stream to see whether a debugger sends them,
and hands the rest to a handler.

When credit is returned: to return it when bytes arrive would be simpler, but the window would then bound nothing,
because a reader that never reads would collect bytes without limit. A reader's credit is returned at its next `read`
and not when `read` returns, since only then is the previous piece known to be processed.

Why a stream rests: a read from the transport may bring a quarter of a mebibyte, and a handler that takes it apart into
thousands of small messages needs a tenth of a second. Other streams have their turn in between: after `MAX_TURN`, the
next bytes are kept until the next turn of the event loop.

Invariants: while the session has the stream, credit is returned once for each received byte, also for bytes that nobody
will read (`close`), because a peer without credit could never send its EOF. Bytes that came before a loss are delivered
before the loss, and EOF waits for the bytes that are still unsent. `_flushing` makes `_flush` run once at a time: the
session may accept more while it takes bytes, and calls `deliver_room` before `send` returns.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Protocol

from relay_core.errors import ConnectionLost, ProtocolError
from relay_core.net.streams.bridge import PeerHandler
from relay_core.tunnel.outcomes import ResetCode

SMALL = 4 * 1024
"""Received pieces below this size are joined while they wait. As a separate object, a one-byte piece would occupy 57
times its size, and a window of such pieces 57 times the window."""
JOINED = 64 * 1024
"""Size at which a joined piece is complete; limits how much is copied for `read`."""


MAX_TURN = 0.002
"""Seconds in a handler after which a stream rests; bytes that pass unread take a twentieth of it."""


class StreamBroken(ConnectionLost):
    """The peer reset a stream, or refused to open it.

    Args:
        reset: The reason code.
        text: The peer's message, or "".
    """

    def __init__(self, reset: ResetCode, text: str) -> None:
        what = text or reset.name.lower().replace("_", " ")
        code = 1000 if reset is ResetCode.CLOSED else 1006
        super().__init__(f"the peer closed the connection: {what}", code=code, reason=what)
        self.reset = reset
        self.reason_to_wait = what


class StreamOwner(Protocol):
    """The part of the session driver that a stream calls."""

    def send(self, stream_id: int, data: bytes | memoryview) -> int:
        """Pass bytes to the session; return how many it accepted. `deliver_room` follows when it accepts more.

        Raises:
            ConnectionLost: the session no longer has this stream.
        """

    def send_eof(self, stream_id: int) -> None:
        """End the sending direction; raises the same errors as `send`."""

    def reset(self, stream_id: int, code: ResetCode, text: str) -> None:
        """End both directions immediately."""

    def forget(self, stream_id: int) -> None:
        """Remove a stream after both directions have ended."""

    def consumed(self, stream_id: int, size: int) -> None:
        """Return credit to the peer for bytes that were consumed."""


class SessionStream:
    """One stream; created by a `SessionDriver`."""

    def __init__(self, owner: StreamOwner, stream_id: int) -> None:
        self.id = stream_id
        self._owner = owner
        self._handler: PeerHandler | None = None
        self._held = False
        """True if the handler has paused reading."""
        self._rests = False
        """True until the next turn of the event loop, because the handler has used up its time in this one."""
        self._received: deque[bytes | bytearray] = deque()
        """Bytes not yet read; a bytearray at the end is a joined piece that can grow."""
        self._unconsumed = 0
        """Number of bytes that the last `read` returned and whose credit has not been returned yet."""
        self._unsent: deque[bytes | memoryview] = deque()
        """Bytes that the session has not accepted yet; `deliver_room` is called when it accepts more."""
        self._flushing = False
        self._has_room = True
        self._writing_paused = False
        """True if the handler was asked to pause writing."""
        self._eof_received = False
        self._eof_wanted = False
        """True if this side has ended its direction; EOF is sent after the unsent bytes."""
        self._eof_sent = False
        self._end_delivered = False
        self._closed = False
        self._broken: ConnectionLost | None = None
        self._changed = asyncio.Event()
        """Set when there is something to read."""
        self._flushed = asyncio.Event()
        """Set when nothing is unsent."""

    # Pushing:

    def deliver_to(self, handler: PeerHandler) -> None:
        """Pass the buffered bytes to the handler, and from now on bytes as they arrive."""
        self._return_credit()
        self._handler, self._held = handler, False
        if self._writing_paused:
            handler.peer_writing_paused()
        self._push()

    def detach(self) -> None:
        """Remove the handler; buffer received bytes for the next handler, or for `read`."""
        self._handler = None

    def send(self, data: bytes) -> None:
        """Send bytes, or drop them if the stream is lost; queue what cannot be sent yet, and pause the handler."""
        if self._broken is not None:
            # The handler still writes, so it has not been notified of the loss. Drop the unread bytes to report the
            # loss now, even if the handler has paused reading.
            self._received.clear()
            self._push()
        else:
            self._unsent.append(data)
            if len(self._unsent) == 1:
                self._flush()

    def send_eof(self) -> None:
        """End this direction after the bytes sent so far; the other direction stays open."""
        if not self._eof_wanted and self._broken is None:
            self._eof_wanted = True
            self._flush()

    def pause_reading(self) -> None:
        """Buffer received bytes until `resume_reading`; the peer stops sending when its window is used up."""
        self._held = True

    def resume_reading(self) -> None:
        """Pass the buffered bytes to the handler, and continue to do so."""
        self._held = False
        self._push()

    # Pulling:

    async def read(self) -> bytes:
        """Return the next bytes, or b"" after the peer has ended its direction; safe to cancel."""
        self._return_credit()
        while not self._received:
            if self._broken is not None:
                raise self._broken
            if self._eof_received:
                return b""
            self._changed.clear()
            await self._changed.wait()
        data = self._next()
        self._unconsumed = len(data)
        return data

    async def read_all(self, limit: int, what: str) -> bytes:
        """Return all bytes until the peer ends its direction; raises ProtocolError if `what` is longer than `limit`."""
        received = bytearray()
        while data := await self.read():
            received += data
            if len(received) > limit:
                raise ProtocolError(f"{what} is too long")
        return bytes(received)

    async def write(self, data: bytes) -> None:
        """Send bytes; return when the session has accepted them all."""
        if self._broken is None:
            self.send(data)
        while self._unsent and self._broken is None:
            self._flushed.clear()
            await self._flushed.wait()
        if self._broken is not None:
            raise self._broken

    async def write_eof(self) -> None:
        """End this direction; the other direction stays open."""
        if self._broken is not None and not self._eof_wanted:
            raise self._broken
        self.send_eof()

    # Ending:

    async def close(self) -> None:
        """End this direction, and discard bytes that still arrive."""
        self._closed = True
        self.send_eof()
        self._return_credit()
        while self._received:  # without credit the peer could not send its remaining bytes and its EOF
            self._owner.consumed(self.id, len(self._received.popleft()))

    def abort(self, reason: str = "", *, code: ResetCode = ResetCode.CANCELLED) -> None:
        """Reset the stream."""
        if self._broken is None:
            self._owner.reset(self.id, code, reason)
            self.break_off(ConnectionLost("the stream was reset by this side"))

    # Called by the driver:

    def deliver(self, data: bytes) -> None:
        """Handle bytes from the peer."""
        if self._closed:
            self._owner.consumed(self.id, len(data))
        elif self._handler is not None and not (self._held or self._rests or self._received):
            self._hand_over(self._handler, data)
        else:
            self._keep(data)
            self._changed.set()

    def deliver_eof(self) -> None:
        """Handle the end of the peer's direction."""
        self._eof_received = True
        self._changed.set()
        self._push()
        self._forget_if_done()

    def deliver_room(self) -> None:
        """Continue sending, because the session accepts bytes again."""
        self._has_room = True
        self._flush()

    def break_off(self, error: ConnectionLost) -> None:
        """Break the stream; bytes that were received before are still delivered."""
        self._broken = error
        self._unsent.clear()
        self._changed.set()
        self._flushed.set()
        self._push()

    def _keep(self, data: bytes) -> None:
        """Buffer bytes until they are read, in about as much memory as they are long."""
        last = self._received[-1] if self._received else None
        if isinstance(last, bytearray) and len(last) < JOINED and len(data) < SMALL:
            last += data
        else:
            self._received.append(bytearray(data) if len(data) < SMALL else data)

    def _next(self) -> bytes:
        data = self._received.popleft()
        return bytes(data) if isinstance(data, bytearray) else data

    def _push(self) -> None:
        """Pass buffered bytes to the handler, and after them EOF or the loss."""
        handler = self._handler
        # The handler may pause reading or be replaced in the middle of this loop.
        while handler is not None and handler is self._handler and not (self._held or self._rests) and self._received:
            self._hand_over(handler, self._next())
        if handler is None or handler is not self._handler or self._received or self._end_delivered:
            return
        if self._broken is not None:
            self._end_delivered = True
            handler.peer_lost(self._broken)
        elif self._eof_received:
            self._end_delivered = True
            handler.peer_eof()

    def _hand_over(self, handler: PeerHandler, data: bytes) -> None:
        begun = time.monotonic()
        handler.peer_data(data)
        self._owner.consumed(self.id, len(data))
        if time.monotonic() - begun > MAX_TURN:
            self._rests = True
            asyncio.get_running_loop().call_soon(self._rested)

    def _rested(self) -> None:
        self._rests = False
        self._push()

    def _flush(self) -> None:
        """Pass unsent bytes to the session, and EOF after them; pause or resume the handler accordingly."""
        if self._flushing:
            return  # called by `deliver_room` within `_owner.send` below; that loop continues
        self._flushing = True
        try:
            while self._unsent and self._send_first():
                pass
            if self._eof_wanted and not (self._eof_sent or self._unsent):
                self._eof_sent = True
                self._owner.send_eof(self.id)
                self._forget_if_done()
        except ConnectionLost as error:
            self.break_off(error)
        finally:
            self._flushing = False
        self._pause_or_resume()

    def _send_first(self) -> bool:
        """Pass the first unsent bytes to the session; return False if the next ones must wait for `deliver_room`."""
        data = self._unsent[0]
        self._has_room = False
        taken = self._owner.send(self.id, data)
        if not self._unsent:  # the stream has been broken off meanwhile
            return False
        if taken == len(data):
            self._unsent.popleft()
            return True
        self._unsent[0] = memoryview(data)[taken:]
        return self._has_room

    def _pause_or_resume(self) -> None:
        paused = bool(self._unsent)
        if not paused:
            self._flushed.set()
        if paused != self._writing_paused:
            self._writing_paused = paused
            if self._handler is not None:
                (self._handler.peer_writing_paused if paused else self._handler.peer_writing_resumed)()

    def _forget_if_done(self) -> None:
        if self._eof_received and self._eof_sent:
            self._owner.forget(self.id)

    def _return_credit(self) -> None:
        if self._unconsumed:
            self._owner.consumed(self.id, self._unconsumed)
            self._unconsumed = 0
