"""Relaying between a sender and a listener.

Messages keep their type and boundaries; frames may be split differently. The two directions end independently:

  * a Close frame from one side is sent to the other with the same code and reason and ends only that direction; the
    other direction continues until its own Close frame, but at most for `close_timeout`;
  * if a side disconnects without a Close frame, the other connection is dropped without one too, so that its peer
    detects a lost connection rather than an orderly close;
  * if a side disconnects after its Close frame, the other side can complete its closing handshake;
  * if a side is slow, reading from the other side is paused, so that the relay buffers a bounded number of bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from relay_core.ws.frames import Chunk, close_payload
from relay_server.config.model import Limits
from relay_server.connection.tcp import Connection
from relay_server.connection.websocket import WebSocket
from relay_server.metrics import Counters

__all__ = ["RelayedPair"]


class RelayedPair:
    """The two WebSockets of a rendezvous, relayed to each other.

    Args:
        sender: The sender's connection, after the 101 response.
        listener: The connection that the listener opened for this sender, after the 101 response.
        extensions_agreed: True if a WebSocket extension was negotiated.
        limits: Timers.
        counters: Those of the hybrid connection.
        ended: Called once, when both connections are closed.
    """

    def __init__(
        self,
        sender: Connection,
        listener: Connection,
        *,
        extensions_agreed: bool,
        limits: Limits,
        counters: Counters,
        ended: Callable[[RelayedPair], None],
    ) -> None:
        self.sender, self.listener = (
            WebSocket(
                connection,
                self,
                extensions_agreed=extensions_agreed,
                ping_interval=limits.ping_interval,
                ping_timeout=limits.ping_timeout,
            )
            for connection in (sender, listener)
        )
        self.counters = counters
        self._close_timeout = limits.close_timeout
        self._close_timer: asyncio.TimerHandle | None = None
        self._ended = ended
        self._open = {self.sender, self.listener}

    def __repr__(self) -> str:
        return f"<RelayedPair {self.sender!r} {self.listener!r}>"

    @property
    def buffered(self) -> int:
        """Bytes waiting in the relay for either side."""
        return self.sender.connection.buffered + self.listener.connection.buffered

    def start(self, from_sender: bytes, from_listener: bytes) -> None:
        """Relay the bytes that were received before the 101 responses."""
        for websocket, early in ((self.sender, from_sender), (self.listener, from_listener)):
            if early:
                websocket.received(memoryview(early))

    def close(self, code: int, reason: str) -> None:
        """Close both directions on behalf of the relay."""
        for websocket in (self.sender, self.listener):
            websocket.send_close(close_payload(code, reason))
        # A peer that never answers with its own Close frame must not keep the pair open (RFC 6455, 7.1.1).
        self._limit_closing()
        self._finish()

    def abort(self) -> None:
        """Drop both connections now."""
        self.sender.connection.abort()
        self.listener.connection.abort()

    # Events of the two WebSockets:

    def chunks_received(self, websocket: WebSocket, chunks: list[Chunk]) -> None:
        """Relay parts of messages."""
        # The flow is bounded by `writing_paused`: chunks are written even while the other side is slow.
        self._other(websocket).send_chunks(chunks)

    def close_received(self, websocket: WebSocket, payload: bytes) -> None:
        """Relay the end of one direction."""
        self._other(websocket).send_close(payload)
        self._limit_closing()
        self._finish()

    def writing_paused(self, websocket: WebSocket) -> None:
        """Pause reading from the other side."""
        self._other(websocket).connection.pause_reading()

    def writing_resumed(self, websocket: WebSocket) -> None:
        """Resume reading from the other side."""
        self._other(websocket).connection.resume_reading()

    def lost(self, websocket: WebSocket) -> None:
        """Drop the other side too, unless this one has sent a Close frame."""
        self._open.discard(websocket)
        other = self._other(websocket)
        if not websocket.close_received:
            # A Close frame made up here would make a lost connection look like one that was closed on purpose.
            other.connection.abort()
        else:
            other.connection.resume_reading()  # it was paused for the other side; its Close frame must be read
        if not self._open:
            if self._close_timer is not None:
                self._close_timer.cancel()
            self._ended(self)

    def _other(self, websocket: WebSocket) -> WebSocket:
        return self.listener if websocket is self.sender else self.sender

    def _limit_closing(self) -> None:
        if self._close_timer is None:  # the first Close frame of either side starts the time limit
            loop = asyncio.get_running_loop()
            self._close_timer = loop.call_later(self._close_timeout, self.abort)

    def _finish(self) -> None:
        """Close each connection whose closing handshake is complete (RFC 6455, 7.1.1: the server closes TCP first)."""
        for websocket in (self.sender, self.listener):
            if websocket.close_sent and websocket.close_received:
                websocket.connection.close()
