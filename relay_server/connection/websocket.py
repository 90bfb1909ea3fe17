"""One upgraded connection: a driver for `relay_core.ws.machine`, which implements the protocol.

The owner interprets the messages: a control channel reads them, and a relayed pair passes them on.
"""

from __future__ import annotations

import asyncio
import logging

from relay_core.ws.frames import Chunk, Close, Violation, close_payload
from relay_core.ws.machine import WebSocketMachine
from relay_server.config.model import Limits
from relay_server.connection.tcp import Connection, Handler

logger = logging.getLogger(__name__)


class Owner:
    """Receives the events of a WebSocket; this one ignores them."""

    def chunks_received(self, websocket: WebSocket, chunks: list[Chunk]) -> None:
        """Pieces of data messages were received."""

    def close_received(self, websocket: WebSocket, payload: bytes) -> None:
        """The peer sent its Close; no further message follows."""

    def writing_paused(self, websocket: WebSocket) -> None:
        """The peer reads too slowly; the write buffer is full."""

    def writing_resumed(self, websocket: WebSocket) -> None:
        """The write buffer has room again."""

    def lost(self, websocket: WebSocket) -> None:
        """The connection is closed, or is being closed because the peer violated the protocol; called once."""


class WebSocket(Handler):
    """The handler of a connection after its 101 response.

    Args:
        connection: A connection after its 101 response.
        owner: Receives the events.
        limits: Has the times of pings, and how long the peer may take to answer a Close.
        extensions_agreed: Whether reserved bits may be set.
    """

    def __init__(
        self, connection: Connection, owner: Owner, limits: Limits, *, extensions_agreed: bool = False
    ) -> None:
        self.connection = connection
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._machine = WebSocketMachine(
            now=self._loop.time(),
            ping_interval=limits.ping_interval,
            ping_timeout=limits.ping_timeout,
            close_timeout=limits.close_timeout,
            extensions_agreed=extensions_agreed,
        )
        self._lost = False
        self._timer = self._loop.call_at(self._machine.next_deadline(), self._tick)
        connection.handler = self

    # Called by the owner:

    @property
    def close_sent(self) -> bool:
        """Whether the direction to the peer has ended."""
        return self._machine.close_sent is not None

    @property
    def close_received(self) -> bool:
        """Whether the direction from the peer has ended."""
        return self._machine.close_received is not None

    def send_chunks(self, chunks: list[Chunk]) -> None:
        """Send pieces of messages in one write."""
        if frames := self._machine.send_chunks(chunks):
            self.connection.write(frames)

    def send_message(self, opcode: int, payload: bytes) -> None:
        """Send one message."""
        if frames := self._machine.send_message(opcode, payload):
            self.connection.write(frames)

    def send_close(self, payload: bytes) -> None:
        """End the direction to the peer; the direction from the peer stays open for a limited time."""
        if frame := self._machine.send_close(payload, self._loop.time()):
            self.connection.write(frame)
            # A peer that never answers with its own Close frame must not keep the connection open (RFC 6455, 7.1.1).
            self._timer.cancel()
            if not self._lost:
                self._timer = self._loop.call_at(self._machine.next_deadline(), self._tick)

    def fail(self, code: int, reason: str) -> None:
        """Send a Close with the reason and drop the connection, without waiting for the peer."""
        self.send_close(close_payload(code, reason))
        self.connection.close()

    # Called by the connection:

    def received(self, data: memoryview) -> None:
        """Decode received bytes and pass the messages to the owner."""
        chunks, end = self._machine.receive_data(data, self._loop.time())
        self._flush()
        if chunks:
            self._owner.chunks_received(self, chunks)
        if isinstance(end, Close):
            self._owner.close_received(self, end.payload)
        elif isinstance(end, Violation):
            logger.info("disconnecting %s:%d: it violated the protocol: %s", *self.connection.remote, end.reason)
            self.fail(end.code, end.reason)
            self.lost()

    def writing_paused(self) -> None:
        """Report to the owner that the write buffer is full."""
        self._owner.writing_paused(self)

    def writing_resumed(self) -> None:
        """Send a pending pong, and report to the owner that the write buffer has room again."""
        self._flush()
        self._owner.writing_resumed(self)

    def lost(self) -> None:
        """Report to the owner, once, that the connection is closed."""
        self._timer.cancel()
        if not self._lost:
            self._lost = True
            self._owner.lost(self)

    def _flush(self) -> None:
        """Send pings and pongs; while the peer does not read, keep only the newest of each."""
        if not self.connection.writing_paused and (frames := self._machine.data_to_send()):
            self.connection.write(frames)

    def _tick(self) -> None:
        """Check whether the peer is alive; a timer that fires early only sets the next one."""
        held_up = self.connection.reading_paused or self.connection.buffered > 0
        self._machine.tick(self._loop.time(), held_up=held_up)
        if self._machine.is_dead:
            unanswered = "a Close frame" if self.close_sent else "a ping"
            logger.info("disconnecting %s:%d: it did not answer %s", *self.connection.remote, unanswered)
            self.connection.abort()
            return
        self._flush()
        self._timer = self._loop.call_at(self._machine.next_deadline(), self._tick)
