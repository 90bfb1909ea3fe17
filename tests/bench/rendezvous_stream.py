"""One rendezvous websocket as a stream: the simplest carrier, one for each TCP connection.

Agent and client use the tunnel instead; this is what the bench compares with.
"""

from __future__ import annotations

import asyncio

from relay_core.errors import ConnectionLost
from relay_core.net.streams.bridge import PeerHandler
from relay_core.net.tasks import TaskSet
from relay_core.net.websocket.connection import WebSocket

__all__ = ["RendezvousStream"]

NORMAL_CLOSE_CODES = frozenset({1000, 1005})
"""Close codes that mean "I have sent everything": a deliberate end, with or without a code."""


class RendezvousStream:
    """A `PeerStream` over a websocket; message boundaries carry no meaning.

    It has no half-close: ending one direction ends both, because the websocket answers a close frame with its own.
    Peers that need half-close use the tunnel.
    """

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        self._tasks = TaskSet()
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._handler: PeerHandler | None = None
        self._draining = False

    def __repr__(self) -> str:
        return f"<RendezvousStream {self._websocket!r}>"

    def deliver_to(self, handler: PeerHandler) -> None:
        """Hand over what comes."""
        self._handler = handler
        self._tasks.spawn(self._deliver(handler), name="rendezvous receiver")

    def detach(self) -> None:
        """Hand over nothing more."""
        self._handler = None

    def send(self, data: bytes) -> None:
        """Send bytes as one binary message; an empty message would mean EOF to other clients, so it is never sent."""
        if data:
            self._websocket.write(data)
        if not (self._draining or self._websocket.has_room) and self._handler is not None:
            self._draining = True
            self._handler.peer_writing_paused()
            self._tasks.spawn(self._resume(self._handler), name="rendezvous sender")

    def send_eof(self) -> None:
        """End both directions: this carrier has no half-close."""
        self._tasks.spawn(self._websocket.close(), name="rendezvous end")

    def pause_reading(self) -> None:
        """Read nothing more."""
        self._wanted.clear()

    def resume_reading(self) -> None:
        """Read on."""
        self._wanted.set()

    async def close(self) -> None:
        """End both directions in order."""
        await self._websocket.close()
        await self._tasks.cancel_all()

    def abort(self, reason: str = "") -> None:
        """Drop the connection; the peer sees a broken one."""
        self._websocket.abort()

    async def _deliver(self, handler: PeerHandler) -> None:
        try:
            while True:
                data = await self._websocket.receive_chunk()
                await self._wanted.wait()
                handler.peer_data(data)
        except ConnectionLost as lost:
            if lost.code in NORMAL_CLOSE_CODES:
                handler.peer_eof()
            else:
                handler.peer_lost(lost)

    async def _resume(self, handler: PeerHandler) -> None:
        try:
            await self._websocket.drain()
        except ConnectionLost:
            return  # the receiver reports it
        self._draining = False
        handler.peer_writing_resumed()
