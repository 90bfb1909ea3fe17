"""The handlers of a connection before and while its HTTP request is served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from relay_server.connection.tcp import Connection, Handler
from relay_server.protocol.http import HeadReader, RequestHead
from relay_server.protocol.refusals import Refusal

MAX_EARLY_BYTES = 64 * 1024
"""Maximum number of bytes that a client may send before the response; a correct client sends none."""
MAX_EARLY_BODY = 512 * 1024
"""Maximum number of bytes of an HTTP request body that are buffered: more than one read of a connection, which is
delivered as a whole even if reading is paused in the middle of it."""


class Handshake(Handler):
    """The handler of a connection until its request is answered.

    Args:
        connection: A new connection, or one whose previous request has been answered.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.reader = HeadReader()
        self.on_lost: Callable[[], object] | None = None
        """Called if the peer disconnects before the response."""
        self._head: asyncio.Future[RequestHead | Refusal] = asyncio.get_running_loop().create_future()
        self._head_has_body = False
        self._early = bytearray()
        connection.handler = self

    @property
    def is_unanswered(self) -> bool:
        """True if no other handler has taken over the connection."""
        return self.connection.handler is self

    async def head(self) -> RequestHead:
        """Return the request head.

        Raises:
            Refusal: The request is malformed or too large.
        """
        result = await self._head
        if isinstance(result, Refusal):
            raise result
        return result

    def early(self) -> bytes:
        """Return the bytes received after the head, for the connection's next handler."""
        return self.reader.trailing() + self.take_early()

    def received(self, data: memoryview) -> None:
        """Read the head; buffer later bytes within limits."""
        if self._head.done():
            self._keep(data)
            return
        try:
            head = self.reader.feed(bytes(data))
        except Refusal as refusal:
            self._head.set_result(refusal)
            return
        if head is not None:
            self._head_has_body = head.has_body
            if head.has_body:
                self.connection.pause_reading()
            self._head.set_result(head)

    def lost(self) -> None:
        """Cancel the request, because the peer has disconnected."""
        self._head.cancel()
        if self.on_lost is not None:
            self.on_lost()

    def take_early(self) -> bytes:
        """Return the bytes received after the call in which the head was complete."""
        early, self._early = bytes(self._early), bytearray()
        return early

    def _keep(self, data: memoryview) -> None:
        self._early += data
        if len(self._early) > (MAX_EARLY_BODY if self._head_has_body else MAX_EARLY_BYTES):
            self.connection.abort()


# The sender's connection while its HTTP request is being relayed: reads the body and writes the response.
#
# Both directions have back-pressure: reading is paused while more than `UNREAD_HIGH` bytes are unread, and `write`
# waits while the write buffer is full.

UNREAD_HIGH = 128 * 1024


class HttpSender(Handler):
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
        early = handshake.take_early()
        self.connection.handler = self
        if head.has_body:
            self._feed(early)
            self._resume()
        else:
            self._next += early

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
        await self.connection.drain()

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
