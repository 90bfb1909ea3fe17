"""A listener's WebSocket for one HTTP request: reading and writing with back-pressure, instead of callbacks."""

from __future__ import annotations

import asyncio
from collections import deque

from relay_core.hyco.messages import MAX_CONTROL_BYTES
from relay_core.ws.frames import CONTINUATION, TEXT, Chunk, close_payload
from relay_server.config.model import Limits
from relay_server.connection.tcp import Connection
from relay_server.connection.websocket import WebSocket
from relay_server.protocol.refusals import bad_response

__all__ = ["HttpRendezvous"]

UNREAD_HIGH = 256 * 1024
"""Bytes that wait for a slow sender before reading from the listener is paused."""


class HttpRendezvous:
    """A listener's connection to the address of an HTTP request.

    Args:
        connection: The connection, after the 101 response.
        limits: Timers.
    """

    def __init__(self, connection: Connection, *, limits: Limits) -> None:
        self._websocket = WebSocket(
            connection, self, ping_interval=limits.ping_interval, ping_timeout=limits.ping_timeout
        )
        self._connection = connection
        self._close_timeout = limits.close_timeout
        self._close_timer: asyncio.TimerHandle | None = None
        self._chunks: deque[Chunk] = deque()
        self._unread = 0
        self._is_lost = False
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    def __repr__(self) -> str:
        return f"<HttpRendezvous {self._websocket!r}>"

    # Called by the exchange:

    def start(self, early: bytes) -> None:
        """Process bytes that were received before the 101 response."""
        if early:
            self._websocket.received(memoryview(early))

    async def read(self) -> Chunk | None:
        """Return the next piece of a message; None after the listener's Close frame.

        Raises:
            Refusal: 502, the connection was lost.
        """
        while not self._chunks:
            if self._websocket.close_received:
                return None
            if self._is_lost:
                raise bad_response()
            self._readable.clear()
            await self._readable.wait()
        chunk = self._chunks.popleft()
        self._unread -= len(chunk.payload)
        if self._unread < UNREAD_HIGH // 2:
            self._connection.resume_reading()
        return chunk

    async def read_text(self) -> str:
        """Return the next text message.

        Raises:
            Refusal: 502, the connection was lost, or the next message is too long or not a text.
        """
        message = bytearray()
        while (chunk := await self.read()) is not None:
            message += chunk.payload
            if (chunk.opcode not in {TEXT, CONTINUATION}) or len(message) > MAX_CONTROL_BYTES:
                break
            if chunk.fin:
                return message.decode(errors="replace")
        raise bad_response()

    async def send_text(self, message: str) -> None:
        """Send a text message."""
        self._websocket.send_message(TEXT, message.encode())
        await self._drain()

    async def send(self, chunk: Chunk) -> None:
        """Send a piece of a binary message; return when the listener can receive more.

        Raises:
            Refusal: 502, the connection was lost.
        """
        self._websocket.send_chunks([chunk])
        await self._drain()

    def close(self) -> None:
        """Close the connection; a rendezvous is used for only one request."""
        # The official listeners do not expect a second request on the same connection, and one of them ignores it.
        self._websocket.send_close(close_payload(1000))
        if self._websocket.close_received:
            self._connection.close()
        elif self._close_timer is None and not self._is_lost:
            loop = asyncio.get_running_loop()
            self._close_timer = loop.call_later(self._close_timeout, self._connection.abort)
        self._connection.resume_reading()

    def abort(self) -> None:
        """Drop the connection, because the request failed."""
        self._connection.abort()

    async def _drain(self) -> None:
        await self._writable.wait()
        if self._is_lost:
            raise bad_response()

    # Events of the WebSocket:

    def chunks_received(self, websocket: WebSocket, chunks: list[Chunk]) -> None:  # noqa: ARG002 - there is one
        """Keep the pieces for the sender."""
        if self._websocket.close_sent:  # the response is complete
            return
        self._chunks.extend(chunks)
        self._unread += sum(len(chunk.payload) for chunk in chunks)
        if self._unread > UNREAD_HIGH:
            self._connection.pause_reading()
        self._readable.set()

    def close_received(self, websocket: WebSocket, payload: bytes) -> None:  # noqa: ARG002 - the answer has its own code
        """Note the end of the listener's messages."""
        self._readable.set()
        if websocket.close_sent:
            self._connection.close()

    def writing_paused(self, websocket: WebSocket) -> None:  # noqa: ARG002 - there is one
        """Make `send` wait."""
        self._writable.clear()

    def writing_resumed(self, websocket: WebSocket) -> None:  # noqa: ARG002 - there is one
        """Let `send` continue."""
        self._writable.set()

    def lost(self, websocket: WebSocket) -> None:  # noqa: ARG002 - there is one
        """Wake the tasks that are waiting."""
        self._is_lost = True
        if self._close_timer is not None:
            self._close_timer.cancel()
        self._readable.set()
        self._writable.set()
