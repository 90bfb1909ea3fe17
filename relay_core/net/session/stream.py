"""A stream of a session as a `ByteStream`: it outlives transports, has half-close, and credit of its own."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from relay_core.errors import ConnectionLost
from relay_core.tunnel.outcomes import ResetCode

__all__ = ["SessionStream", "StreamOwner"]


class StreamOwner(Protocol):
    """What a stream needs of its session's driver."""

    def send(self, stream_id: int, data: bytes | memoryview, broken: ConnectionLost | None) -> int:
        """Hand bytes to the session and return how many it took; raises `broken` if there is one."""

    def send_eof(self, stream_id: int, broken: ConnectionLost | None) -> None:
        """End the sending direction; raises as `send`."""

    def reset(self, stream_id: int, code: ResetCode, text: str) -> None:
        """End both directions at once."""

    def forget(self, stream_id: int) -> None:
        """Drop a stream of which both directions have ended."""

    def consumed(self, stream_id: int, size: int) -> None:
        """Give back credit."""


class SessionStream:
    """One stream; made by a `SessionDriver`.

    Reads give credit back one read later, when the consumer has passed the bytes on, so a slow consumer stops its
    peer after one window.
    """

    def __init__(self, driver: StreamOwner, stream_id: int) -> None:
        self.id = stream_id
        self._driver = driver
        self._received: deque[bytes] = deque()
        self._unconsumed = 0
        self._eof_received = False
        self._eof_sent = False
        self._closed = False
        self._broken: ConnectionLost | None = None
        self._changed = asyncio.Event()
        """Set when there is something to read."""
        self._reading = False
        """Somebody waits in `read`."""
        self._take: Callable[[bytes], bool] = lambda _data: False
        self._writable = asyncio.Event()

    def __repr__(self) -> str:
        state = "broken" if self._broken else "closed" if self._closed else "open"
        return f"<SessionStream {self.id} {state} waiting={sum(map(len, self._received))}>"

    async def read(self) -> bytes:
        """Return the next bytes, or b"" once the peer has ended its direction; safe to cancel."""
        self._give_back()
        while not self._received:
            if self._broken is not None:
                raise self._broken
            if self._eof_received:
                return b""
            self._changed.clear()
            self._reading = True
            try:
                await self._changed.wait()
            finally:
                self._reading = False
        data = self._received.popleft()
        self._unconsumed = len(data)
        return data

    async def write(self, data: bytes) -> None:
        """Hand bytes to the session; returns when it can take more."""
        left: bytes | memoryview = data
        while True:
            self._writable.clear()
            taken = self._driver.send(self.id, left, self._broken)
            if taken == len(left):
                return
            left = memoryview(left)[taken:]
            await self._writable.wait()

    def write_some(self, data: bytes) -> int:
        """Hand over as much as the session takes now; that is nothing if the stream is broken, which `write` tells."""
        try:
            return self._driver.send(self.id, data, self._broken)
        except ConnectionLost:
            return 0

    def offer_to(self, take: Callable[[bytes], bool]) -> None:
        """Offer what arrives while somebody waits in `read` to `take`."""
        self._take = take

    async def write_eof(self) -> None:
        """End this direction; the other one goes on."""
        if not self._eof_sent:
            self._eof_sent = True
            self._driver.send_eof(self.id, self._broken)
            self._forget_if_done()

    async def close(self) -> None:
        """End this direction, and drop what still comes."""
        self._closed = True
        if self._broken is None:
            await self.write_eof()
        self._give_back()
        while self._received:
            self._driver.consumed(self.id, len(self._received.popleft()))

    def abort(self, reason: str = "", *, code: ResetCode = ResetCode.CANCELLED) -> None:
        """Reset the stream."""
        if self._broken is None:
            self._driver.reset(self.id, code, reason)
            self.break_off(ConnectionLost("the stream was reset by this side"))

    # What the driver tells:

    def deliver(self, data: bytes) -> None:
        """The peer sent bytes."""
        if self._closed or (self._reading and not self._received and self._take(data)):
            self._driver.consumed(self.id, len(data))
            return
        self._received.append(data)
        self._changed.set()

    def deliver_eof(self) -> None:
        """The peer ended its direction."""
        self._eof_received = True
        self._changed.set()
        self._forget_if_done()

    def deliver_room(self) -> None:
        """The session takes bytes again."""
        self._writable.set()

    def break_off(self, error: ConnectionLost) -> None:
        """The stream is gone; what was received before can still be read."""
        self._broken = error
        self._changed.set()
        self._writable.set()

    def _forget_if_done(self) -> None:
        if self._eof_received and self._eof_sent:
            self._driver.forget(self.id)

    def _give_back(self) -> None:
        if self._unconsumed:
            self._driver.consumed(self.id, self._unconsumed)
            self._unconsumed = 0
