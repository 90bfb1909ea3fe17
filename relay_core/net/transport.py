"""One rendezvous websocket as a transport for a session: bytes both ways, encrypted if there is a tunnel key."""

from __future__ import annotations

from collections.abc import Iterable

from relay_core.errors import ConnectionLost
from relay_core.net.secure_channel import ChannelState, SecureChannel, TunnelIdentity
from relay_core.net.websocket import WebSocket

__all__ = ["Transport"]


class Transport:
    """A websocket, and the TLS channel inside it.

    Args:
        websocket: Open; owned from now on.
        identity: This side's certificate, or None for a transport in the clear.
    """

    def __init__(self, websocket: WebSocket, identity: TunnelIdentity | None) -> None:
        self._websocket = websocket
        self._channel = SecureChannel(identity) if identity is not None else None

    def __repr__(self) -> str:
        return f"<Transport {self._websocket!r} {self._channel!r}>"

    async def start(self) -> bytes:
        """Shake hands; returns the first bytes of the peer if some came along.

        Raises:
            TunnelKeyMissing, WrongTunnelKey: the sides do not share a tunnel key.
            ConnectionLost, ProtocolError: it ended, or the peer is something else.
        """
        plaintext = b""
        if self._channel is not None:
            await self._flush(self._channel)
            while self._channel.state is ChannelState.HANDSHAKE:
                plaintext += await self.receive()
        return plaintext

    async def receive(self) -> bytes:
        """Return what comes next; b"" for bytes that carried none of the peer's.

        Raises:
            ConnectionLost: the transport has ended.
            ProtocolError, TunnelKeyMissing, WrongTunnelKey: the peer breaks the rules.
        """
        channel = self._channel
        if channel is None:
            return await self._websocket.receive_chunk()
        plaintext = b""
        if channel.state is not ChannelState.CLOSED:
            data = await self._websocket.receive_chunk()
            try:
                plaintext = channel.feed(data)
            finally:
                await self._flush(channel)
        if channel.state is ChannelState.CLOSED and not plaintext:  # what came before the goodbye comes first
            raise ConnectionLost("the other side closed the transport", code=1000)
        return plaintext

    async def send(self, buffers: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send buffers, in order, as one message; returns when the socket can take more.

        Raises:
            ConnectionLost: the transport has ended.
        """
        await self._websocket.send(b"".join(buffers) if self._channel is None else self._channel.seal(buffers))

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """End in order."""
        if self._channel is not None and (goodbye := self._channel.close()):
            try:
                await self._websocket.send(goodbye)
            except ConnectionLost:
                return
        await self._websocket.close(code, reason)

    def abort(self) -> None:
        """Drop it at once."""
        self._websocket.abort()

    async def _flush(self, channel: SecureChannel) -> None:
        """Send handshake messages and alerts. No await between taking them and handing them over keeps their order."""
        if pending := channel.data_to_send():
            await self._websocket.send(pending)
