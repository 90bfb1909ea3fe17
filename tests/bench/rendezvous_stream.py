"""One rendezvous websocket as a byte stream: the simplest carrier, one for each TCP connection.

Agent and client use the tunnel instead; this is for peers that do not speak it, and what the bench compares with.
"""

from __future__ import annotations

from collections.abc import Callable

from relay_core.errors import ConnectionLost
from relay_core.net.websocket.handshake import WebSocket

__all__ = ["RendezvousStream"]

NORMAL_CLOSE_CODES = frozenset({1000, 1005})
"""Close codes that mean "I have sent everything": a deliberate end, with or without a code."""


class RendezvousStream:
    """A `ByteStream` over a websocket; message boundaries carry no meaning.

    It has no half-close: ending one direction ends both, because the websocket library answers a close frame with
    its own. Peers that need half-close use the tunnel.
    """

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket

    def __repr__(self) -> str:
        return f"<RendezvousStream {self._websocket!r}>"

    async def read(self) -> bytes:
        """Return the next bytes; b"" after the peer's orderly end."""
        try:
            return await self._websocket.receive_chunk()
        except ConnectionLost as lost:
            if lost.code in NORMAL_CLOSE_CODES:
                return b""
            raise

    async def write(self, data: bytes) -> None:
        """Send bytes as one binary message; an empty message would mean EOF to other clients, so it is never sent."""
        if data:
            await self._websocket.send(data)

    def write_some(self, data: bytes) -> int:
        """Send nothing: `write` does."""
        return 0

    def offer_to(self, take: Callable[[bytes], bool]) -> None:
        """Offer nothing: `read` returns it all."""

    async def write_eof(self) -> None:
        """End both directions: this carrier has no half-close."""
        await self._websocket.close()

    async def close(self) -> None:
        """End both directions in order."""
        await self._websocket.close()

    def abort(self, reason: str = "") -> None:
        """Drop the connection; the peer sees a broken one."""
        self._websocket.abort()
