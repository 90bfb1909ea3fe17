"""The pipe between a sender and a listener.

Messages keep their type and boundaries; frames are cut anew. Each direction has its own life:

  * a Close from one side is sent to the other with the same code and reason and ends only that direction; the other
    direction goes on until its own Close, for `close_timeout` at most, then both connections close;
  * a side that vanishes without a Close takes the other one with it, again without a Close, so that the survivor
    sees a broken connection and not an orderly end;
  * a side that vanishes after its Close is owed nothing: the other one may finish its closing handshake;
  * a slow side pauses the reading of the other, so the relay holds a bounded number of bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from relay_core.ws.frames import Chunk, close_payload
from relay_server.config.model import Limits
from relay_server.connection.tcp import Connection
from relay_server.connection.websocket import WebSocket

__all__ = ["RelayedPair"]


class RelayedPair:
    """Two websockets that are each other's far end.

    Args:
        sender: Answered with 101 already, like `listener`.
        listener: The connection that the listener dialled for this sender.
        extensions_agreed: Whether the listener chose a websocket extension.
        limits: Times.
        ended: Called once, when both connections are gone.
    """

    def __init__(
        self,
        sender: Connection,
        listener: Connection,
        *,
        extensions_agreed: bool,
        limits: Limits,
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
        self._close_timeout = limits.close_timeout
        self._close_timer: asyncio.TimerHandle | None = None
        self._ended = ended
        self._open = {self.sender, self.listener}

    def __repr__(self) -> str:
        return f"<RelayedPair {self.sender!r} {self.listener!r}>"

    @property
    def buffered(self) -> int:
        """Bytes that wait in the relay for either side."""
        return self.sender.connection.buffered + self.listener.connection.buffered

    def start(self, from_sender: bytes, from_listener: bytes) -> None:
        """Relay what came before the connections were paired."""
        for websocket, early in ((self.sender, from_sender), (self.listener, from_listener)):
            if early:
                websocket.received(memoryview(early))

    def close(self, code: int, reason: str) -> None:
        """End both directions from the middle."""
        for websocket in (self.sender, self.listener):
            websocket.send_close(close_payload(code, reason))
        self._limit_closing()
        self._finish()

    def abort(self) -> None:
        """Drop both connections now."""
        self.sender.connection.abort()
        self.listener.connection.abort()

    # What the two websockets report:

    def chunks_received(self, websocket: WebSocket, chunks: list[Chunk]) -> None:
        """Pass on pieces of messages."""
        self._other(websocket).send_chunks(chunks)

    def close_received(self, websocket: WebSocket, payload: bytes) -> None:
        """Pass on the end of one direction."""
        self._other(websocket).send_close(payload)
        self._limit_closing()
        self._finish()

    def writing_paused(self, websocket: WebSocket) -> None:
        """Read no more of what this side cannot take."""
        self._other(websocket).connection.pause_reading()

    def writing_resumed(self, websocket: WebSocket) -> None:
        """Read on."""
        self._other(websocket).connection.resume_reading()

    def lost(self, websocket: WebSocket) -> None:
        """Let the other side know in the way that fits."""
        self._open.discard(websocket)
        other = self._other(websocket)
        if not websocket.close_received:
            other.connection.abort()
        else:
            other.connection.resume_reading()  # nobody is left to be slow, and its Close must be seen
        if not self._open:
            if self._close_timer is not None:
                self._close_timer.cancel()
            self._ended(self)

    def _other(self, websocket: WebSocket) -> WebSocket:
        return self.listener if websocket is self.sender else self.sender

    def _limit_closing(self) -> None:
        if self._close_timer is None:
            loop = asyncio.get_running_loop()
            self._close_timer = loop.call_later(self._close_timeout, self.abort)

    def _finish(self) -> None:
        """Close each connection whose closing handshake is complete (RFC 6455 7.1.1: the server closes TCP first)."""
        for websocket in (self.sender, self.listener):
            if websocket.close_sent and websocket.close_received:
                websocket.connection.close()
