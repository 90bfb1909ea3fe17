"""A stream with somebody in the middle, who sees what goes by and may have a word of his own.

    local program <--- inject, read <---  interposer  <--- arrived ---  stream
    local program ---- write -------->    interposer  ---- written -->  stream

What the interposer says to the local program comes between two calls of `read` or at once; the bytes of each direction
stay in their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from relay_core.errors import ConnectionLost
from relay_core.net.streams.stream import DirectStream

__all__ = ["InterposedStream", "Interposer"]


class Interposer(Protocol):
    """Sees both directions of a stream; `now` is in seconds of the event loop's clock."""

    def arrived(self, data: bytes, now: float) -> bytes:
        """Take bytes of the stream; return those for the local program."""

    def written(self, data: bytes, now: float) -> tuple[bytes, bytes]:
        """Take bytes of the local program; return those for the stream, and those back to the local program."""

    def arrived_end(self) -> bytes:
        """Return bytes for the local program: the stream has ended."""

    def written_end(self) -> bytes:
        """Return bytes for the stream: the local program has ended its direction."""


class InterposedStream:
    """A stream; see `relay_core.net.streams.stream` for what its methods promise.

    Args:
        stream: What carries the bytes.
        interposer: Sees them all.
    """

    def __init__(self, stream: DirectStream, interposer: Interposer) -> None:
        self._stream = stream
        self._interposer = interposer
        self._loop = asyncio.get_running_loop()
        self._inject: Callable[[bytes], None] | None = None
        self._ready: list[bytes] = []
        """What `read` returns next."""
        self._in_flight = False
        """The reader may not have passed on yet what `read` has returned."""
        self._unsent = b""
        """What was taken from the writer and the stream had no room for."""
        self._taken = 0
        """How much of what the writer will come with again that is."""

    def __repr__(self) -> str:
        return f"<InterposedStream {self._interposer!r} in {self._stream!r}>"

    def inject_into(self, writer: asyncio.StreamWriter) -> None:
        """Say where bytes for the local program go while nobody reads; few and small ones, which need not wait."""
        self._inject = writer.write

    async def read(self) -> bytes:
        """Return the next bytes for the local program."""
        self._in_flight = False
        while not self._ready:
            try:
                data = await self._stream.read()
            except ConnectionLost:
                if told := self._end():
                    return told  # what came before; the next call raises again
                raise
            if not data:
                return self._end()
            if told := self._interposer.arrived(data, self._loop.time()):
                self._ready.append(told)
        data = b"".join(self._ready)
        self._ready.clear()
        self._in_flight = True
        return data

    def offer_to(self, take: Callable[[bytes], bool]) -> None:
        """Offer bytes for the local program to `take`."""

        def take_told(data: bytes) -> bool:
            if self._ready or not take(b""):
                return False
            told = self._interposer.arrived(data, self._loop.time())
            if told:
                take(told)
            return True

        self._stream.offer_to(take_told)

    async def write(self, data: bytes) -> None:
        """Take bytes of the local program."""
        data, self._taken = data[self._taken :], 0
        onward = self._unsent + self._pass(data)
        self._unsent = b""
        if onward:
            await self._stream.write(onward)

    def write_some(self, data: bytes) -> int:
        """Take bytes of the local program, or none of them where the stream has no room for what they have become."""
        onward = self._pass(data)
        sent = self._stream.write_some(onward) if onward else 0
        if sent == len(onward):
            return len(data)
        self._unsent, self._taken = onward[sent:], len(data)
        return 0

    async def write_eof(self) -> None:
        """End this direction."""
        if rest := self._interposer.written_end():
            await self._stream.write(rest)
        await self._stream.write_eof()

    async def close(self) -> None:
        """End both directions."""
        await self._stream.close()

    def abort(self, reason: str = "") -> None:
        """Drop the stream."""
        self._stream.abort(reason)

    def _end(self) -> bytes:
        """Return the last bytes for the local program, if there are any."""
        self._inject = None
        return self._interposer.arrived_end()

    def _pass(self, data: bytes) -> bytes:
        onward, back = self._interposer.written(data, self._loop.time())
        self._tell(back)
        return onward

    def _tell(self, data: bytes) -> None:
        """Bytes for the local program, out of turn."""
        if not data:
            return
        if self._in_flight or self._ready or self._inject is None:
            self._ready.append(data)
        else:
            self._inject(data)
