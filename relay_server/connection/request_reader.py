"""A connection before its answer: reads a request's head, holds what comes too early, tells if the peer leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from relay_server.connection.tcp import Connection
from relay_server.protocol.http import HeadReader, RequestHead
from relay_server.protocol.refusals import Refusal

__all__ = ["Handshake"]

MAX_EARLY_BYTES = 64 * 1024
"""What a client may send before its answer; a well-behaved one sends nothing."""


class Handshake:
    """The handler of a connection until it is answered.

    Args:
        connection: A fresh connection.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.on_lost: Callable[[], object] | None = None
        """Called if the peer leaves before its answer."""
        self._reader = HeadReader()
        self._head: asyncio.Future[RequestHead | Refusal] = asyncio.get_running_loop().create_future()
        self._head_has_body = False
        self._early = bytearray()
        connection.handler = self

    async def head(self) -> RequestHead:
        """Return the request's head.

        Raises:
            Refusal: it cannot be read.
        """
        result = await self._head
        if isinstance(result, Refusal):
            raise result
        return result

    def early(self) -> bytes:
        """Return the bytes that came after the head, for the connection's next handler."""
        return self._reader.trailing() + bytes(self._early)

    def received(self, data: memoryview) -> None:
        """Read the head, then keep the rest within limits."""
        if self._head.done():
            self._keep(data)
            return
        try:
            head = self._reader.feed(bytes(data))
        except Refusal as refusal:
            self._head.set_result(refusal)
            return
        if head is not None:
            self._head_has_body = head.has_body
            self._head.set_result(head)

    def writing_paused(self) -> None:
        """Nothing is streamed yet."""

    def writing_resumed(self) -> None:
        """Nothing is streamed yet."""

    def lost(self) -> None:
        """The peer has left."""
        self._head.cancel()
        if self.on_lost is not None:
            self.on_lost()

    def _keep(self, data: memoryview) -> None:
        if self._head_has_body:  # it will be refused; its body must not get in the way of that answer
            return
        self._early += data
        if len(self._early) > MAX_EARLY_BYTES:
            self.connection.abort()
