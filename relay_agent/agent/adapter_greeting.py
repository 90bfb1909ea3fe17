"""A debugger's stream whose end does not reach debugpy before debugpy has greeted.

The adapter greets each connection in the thread that accepts them: two `output` events, then `debugpySockets`. If the
connection ends before the last of them, so does that thread, and every later debugger hangs (microsoft/debugpy#1308).
Of several connections at the same time only one gets the third event, so it is not waited for without end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConnectionLost
from relay_core.net.streams.stream import DirectStream

__all__ = ["GreetedStream"]

LAST_WORD = b'"debugpySockets"'
GREETING_TIME = 2.0
"""Seconds for all of the greeting, after its first bytes."""


class GreetedStream:
    """A client's stream; see `relay_core.net.streams.stream` for what its methods promise.

    Args:
        stream: The client's.
    """

    def __init__(self, stream: DirectStream) -> None:
        self._stream = stream
        self._greeted = asyncio.Event()
        self._tail = b""
        self._deadline = asyncio.get_running_loop().time() + GREETING_TIME

    async def read(self) -> bytes:
        """Return the client's next bytes; its end is noticed late, if it comes too early for debugpy."""
        try:
            data = await self._stream.read()
        except ConnectionLost:
            await self._until_greeted()
            raise
        if not data:
            await self._until_greeted()
        return data

    async def write(self, data: bytes) -> None:
        """Send debugpy's bytes; those of a greeting that nobody hears any more are dropped."""
        if not self._greeted.is_set():
            seen = self._tail + data
            self._tail = seen[-len(LAST_WORD) :]
            if LAST_WORD in seen:
                self._greeted.set()
        try:
            await self._stream.write(data)
        except ConnectionLost:
            if self._greeted.is_set():
                raise

    def write_some(self, data: bytes) -> int:
        """Send debugpy's bytes, but for its greeting, which `write` looks at."""
        return self._stream.write_some(data) if self._greeted.is_set() else 0

    def offer_to(self, take: Callable[[bytes], bool]) -> None:
        """Offer the client's bytes."""
        self._stream.offer_to(take)

    async def write_eof(self) -> None:
        """Pass debugpy's own end on."""
        self._greeted.set()
        await self._stream.write_eof()

    async def close(self) -> None:
        """End both directions."""
        await self._stream.close()

    def abort(self, reason: str = "") -> None:
        """Drop the client."""
        self._stream.abort(reason)

    async def _until_greeted(self) -> None:
        with contextlib.suppress(*TIMEOUT_ERRORS):
            async with timeout(max(0.0, self._deadline - asyncio.get_running_loop().time())):
                await self._greeted.wait()
        self._greeted.set()
