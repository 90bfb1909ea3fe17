"""A stream of a session, which outlives transports and has half-close and credit of its own.

It pushes to a handler if it has one (`PeerStream`), and keeps what comes for `read` otherwise (`ByteStream`). Credit
goes back to the peer when bytes have been handed over, or one read later, when the reader has passed them on; so a slow
consumer stops its peer after one window.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from relay_core.errors import ConnectionLost
from relay_core.net.streams.stream import PeerHandler
from relay_core.tunnel.outcomes import ResetCode

__all__ = ["SessionStream", "StreamBroken", "StreamOwner"]


class StreamBroken(ConnectionLost):
    """The peer reset one stream, or refused to open it.

    Args:
        reset: Why.
        text: The peer's sentence, or "".
    """

    def __init__(self, reset: ResetCode, text: str) -> None:
        what = text or reset.name.lower().replace("_", " ")
        super().__init__(f"the other side ended the connection: {what}", reason=what)
        self.reset = reset


class StreamOwner(Protocol):
    """What a stream needs of its session's driver."""

    def send(self, stream_id: int, data: bytes | memoryview) -> int:
        """Hand bytes to the session and return how many it took; `deliver_room` follows when it takes more.

        Raises:
            ConnectionLost: the session has no such stream any more.
        """

    def send_eof(self, stream_id: int) -> None:
        """End the sending direction; raises as `send`."""

    def reset(self, stream_id: int, code: ResetCode, text: str) -> None:
        """End both directions at once."""

    def forget(self, stream_id: int) -> None:
        """Both directions have ended."""

    def consumed(self, stream_id: int, size: int) -> None:
        """Give back credit."""


class SessionStream:
    """One stream; made by a `SessionDriver`."""

    def __init__(self, owner: StreamOwner, stream_id: int) -> None:
        self.id = stream_id
        self._owner = owner
        self._handler: PeerHandler | None = None
        self._held = False
        """The handler wants nothing for now."""
        self._received: deque[bytes] = deque()
        self._unconsumed = 0
        """Bytes that the last `read` returned."""
        self._unsent: deque[bytes | memoryview] = deque()
        """What the session did not take; `deliver_room` is called when it takes more."""
        self._flushing = False
        self._has_room = True
        self._writing_paused = False
        """The handler was asked to send nothing else."""
        self._eof_received = False
        self._eof_wanted = False
        """This side has ended its direction, behind what is unsent."""
        self._eof_sent = False
        self._end_delivered = False
        self._closed = False
        self._broken: ConnectionLost | None = None
        self._changed = asyncio.Event()
        """Set when there is something to read."""
        self._flushed = asyncio.Event()
        """Set when nothing is unsent."""

    def __repr__(self) -> str:
        state = "broken" if self._broken else "closed" if self._closed else "open"
        return f"<SessionStream {self.id} {state} waiting={sum(map(len, self._received))}>"

    # Pushing:

    def deliver_to(self, handler: PeerHandler) -> None:
        """Hand over what has come so far, and from now on what comes, as it comes."""
        self._give_back()
        self._handler, self._held = handler, False
        if self._writing_paused:
            handler.peer_writing_paused()
        self._hand_over()

    def detach(self) -> None:
        """Keep what comes for the next handler, or for `read`."""
        self._handler = None

    def send(self, data: bytes) -> None:
        """Send bytes, or drop them if the stream is lost; what cannot leave is kept, and the handler is paused."""
        if self._broken is not None:
            self._received.clear()  # nobody can be waiting for these who still writes to a lost stream
            self._hand_over()
        elif self._unsent or self._flushing:
            self._unsent.append(data)
        else:
            self._send_now(data)

    def send_eof(self) -> None:
        """End this direction behind what was sent; the other one stays open."""
        if not self._eof_wanted and self._broken is None:
            self._eof_wanted = True
            self._flush()

    def pause_reading(self) -> None:
        """Hand over nothing until `resume_reading`; the peer is slowed down once its window is full."""
        self._held = True

    def resume_reading(self) -> None:
        """Hand over what has come meanwhile, and what comes."""
        self._held = False
        self._hand_over()

    # Pulling:

    async def read(self) -> bytes:
        """Return the next bytes, or b"" once the peer has ended its direction; safe to cancel."""
        self._give_back()
        while not self._received:
            if self._broken is not None:
                raise self._broken
            if self._eof_received:
                return b""
            self._changed.clear()
            await self._changed.wait()
        data = self._received.popleft()
        self._unconsumed = len(data)
        return data

    async def write(self, data: bytes) -> None:
        """Send bytes; returns when the session can take more."""
        if self._broken is None:
            self.send(data)
        while self._unsent and self._broken is None:
            self._flushed.clear()
            await self._flushed.wait()
        if self._broken is not None:
            raise self._broken

    async def write_eof(self) -> None:
        """End this direction; the other one stays open."""
        if self._broken is not None and not self._eof_wanted:
            raise self._broken
        self.send_eof()

    # Ending:

    async def close(self) -> None:
        """End this direction, and drop what still comes."""
        self._closed = True
        self.send_eof()
        self._give_back()
        while self._received:
            self._owner.consumed(self.id, len(self._received.popleft()))

    def abort(self, reason: str = "", *, code: ResetCode = ResetCode.CANCELLED) -> None:
        """Reset the stream."""
        if self._broken is None:
            self._owner.reset(self.id, code, reason)
            self.break_off(ConnectionLost("the stream was reset by this side"))

    # What the driver reports:

    def deliver(self, data: bytes) -> None:
        """The peer sent bytes."""
        if self._closed:
            self._owner.consumed(self.id, len(data))
        elif self._handler is not None and not self._held and not self._received:
            self._handler.peer_data(data)
            self._owner.consumed(self.id, len(data))
        else:
            self._received.append(data)
            self._changed.set()

    def deliver_eof(self) -> None:
        """The peer ended its direction."""
        self._eof_received = True
        self._changed.set()
        self._hand_over()
        self._forget_if_done()

    def deliver_room(self) -> None:
        """The session takes bytes again."""
        self._has_room = True
        self._flush()

    def break_off(self, error: ConnectionLost) -> None:
        """The stream is gone; what was received before is still delivered."""
        self._broken = error
        self._unsent.clear()
        self._changed.set()
        self._flushed.set()
        self._hand_over()

    def _hand_over(self) -> None:
        """Give the handler what waits for it, and the end behind that."""
        handler = self._handler
        while handler is not None and handler is self._handler and not self._held and self._received:
            data = self._received.popleft()
            handler.peer_data(data)
            self._owner.consumed(self.id, len(data))
        if handler is None or handler is not self._handler or self._received or self._end_delivered:
            return
        if self._broken is not None:
            self._end_delivered = True
            handler.peer_lost(self._broken)
        elif self._eof_received:
            self._end_delivered = True
            handler.peer_eof()

    def _send_now(self, data: bytes) -> None:
        """Do what `_flush` does for bytes that nothing waits in front of, which is the usual case."""
        self._flushing = True
        self._has_room = False
        try:
            taken = self._owner.send(self.id, data)
        except ConnectionLost as error:
            self.break_off(error)
            return
        finally:
            self._flushing = False
        if taken < len(data):
            self._unsent.append(memoryview(data)[taken:])
            if self._has_room:
                self._flush()
            else:
                self._pause_or_resume()

    def _flush(self) -> None:
        """Hand the session what it takes, and the end behind that; pause and resume the handler."""
        if self._flushing:
            return  # it has found room for more while it is still in the call below
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
        """Hand the session the first bytes that are unsent; False if it has to find room for the next."""
        data = self._unsent[0]
        self._has_room = False
        taken = self._owner.send(self.id, data)
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

    def _give_back(self) -> None:
        if self._unconsumed:
            self._owner.consumed(self.id, self._unconsumed)
            self._unconsumed = 0
