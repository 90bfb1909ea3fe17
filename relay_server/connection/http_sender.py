"""The sender's connection while its HTTP request is being relayed: reads the body and writes the response.

Both directions have back-pressure: reading is paused while more than `UNREAD_HIGH` bytes are unread, and `write` waits
while the write buffer is full.
"""

from __future__ import annotations

import asyncio

from relay_server.connection.request_reader import MAX_EARLY_BYTES, Handshake
from relay_server.protocol.http import RequestHead
from relay_server.protocol.refusals import Refusal

__all__ = ["HttpSender"]

UNREAD_HIGH = 128 * 1024


class HttpSender:
    """Handler of a connection from the head of an HTTP request to the end of its response.

    Args:
        handshake: The handler that has read the head; its `on_lost` stays in use.
        head: The request.
    """

    def __init__(self, handshake: Handshake, head: RequestHead) -> None:
        self.connection = handshake.connection
        self.body_read = not head.has_body
        """True when `read` has returned the whole body."""
        self._handshake = handshake
        self._reader = handshake.reader
        self._unread = bytearray()
        self._complete = not head.has_body
        self._next = bytearray()  # bytes of the next request
        self._refusal: Refusal | None = None
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        early = handshake.take_early()
        self.connection.handler = self
        if head.has_body:
            self._feed(early)
            self._resume()
        else:
            self._next += early

    def __repr__(self) -> str:
        return f"<HttpSender {self.connection!r} unread={len(self._unread)}>"

    async def read(self) -> bytes:
        """Return a part of the body, which is b"" only at its end.

        Raises:
            Refusal: 400, the body is malformed.
        """
        while not (self._unread or self._complete):
            if self._refusal is not None:
                raise self._refusal
            self._readable.clear()
            await self._readable.wait()
        part, self._unread = bytes(self._unread), bytearray()
        self.body_read = not part
        self._resume()
        return part

    async def write(self, data: bytes) -> None:
        """Send bytes of the response; return when the write buffer has room."""
        self.connection.write(data)
        await self._writable.wait()

    def next_handshake(self) -> Handshake:
        """Return the handler for the next request on this connection; the body must have been read."""
        following = Handshake(self.connection)
        following.on_lost = self._handshake.on_lost
        if early := self._reader.trailing() + bytes(self._next):
            following.received(memoryview(early))
        self.connection.resume_reading()
        return following

    # Called by the connection:

    def received(self, data: memoryview) -> None:
        """Decode bytes of the body; keep the bytes of the next request, which pipelining clients send early."""
        if self._complete:
            self._next += data
        else:
            self._feed(bytes(data))
        if len(self._unread) > UNREAD_HIGH or len(self._next) > MAX_EARLY_BYTES:
            self.connection.pause_reading()

    def writing_paused(self) -> None:
        """Make `write` wait."""
        self._writable.clear()

    def writing_resumed(self) -> None:
        """Let `write` continue."""
        self._writable.set()

    def lost(self) -> None:
        """Cancel the exchange, because the sender has disconnected."""
        self._handshake.lost()

    def _feed(self, data: bytes) -> None:
        if self._refusal is not None:
            return
        try:
            part, self._complete = self._reader.feed_body(data)
        except Refusal as refusal:
            self._refusal = refusal
        else:
            self._unread += part
        self._readable.set()

    def _resume(self) -> None:
        if len(self._next) <= MAX_EARLY_BYTES:
            self.connection.resume_reading()
