"""Handler of a connection whose request is not answered yet: reads the head and buffers early data."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from relay_server.connection.tcp import Connection
from relay_server.protocol.http import HeadReader, RequestHead
from relay_server.protocol.refusals import Refusal

__all__ = ["MAX_EARLY_BYTES", "Discarding", "Handshake"]

MAX_EARLY_BYTES = 64 * 1024
"""Maximum number of bytes that a client may send before the response; a correct client sends none."""
MAX_EARLY_BODY = 512 * 1024
"""Maximum number of bytes of an HTTP request body that are buffered: what TLS may still deliver after reading was
paused (256 KiB)."""


class Handshake:
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

    def writing_paused(self) -> None:
        """Do nothing; there is only one small response."""

    def writing_resumed(self) -> None:
        """Do nothing; there is only one small response."""

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


class Discarding:
    """The handler of a connection whose request was refused: drops the body, so that the client reads the response."""

    def received(self, data: memoryview) -> None:
        """Do nothing."""

    def writing_paused(self) -> None:
        """Do nothing."""

    def writing_resumed(self) -> None:
        """Do nothing."""

    def lost(self) -> None:
        """Do nothing."""
