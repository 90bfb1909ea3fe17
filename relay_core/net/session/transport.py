"""Transport of a session: one rendezvous WebSocket, with a TLS channel inside it if there is a tunnel key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NoReturn

from relay_core.errors import ConnectionLost, RelayDebugError
from relay_core.net.session.secure_channel import ChannelState, SecureChannel
from relay_core.net.session.tunnel_identity import TunnelIdentity
from relay_core.net.websocket.connection import WebSocket
from relay_core.tunnel.frames import Buffer

__all__ = ["Transport"]


class Transport:
    """A WebSocket and the TLS channel inside it.

    The handshakes call `receive`. After them, the session uses `deliver_to`, which saves one turn of the event loop per
    message.

    Args:
        websocket: An open WebSocket; the transport closes it.
        identity: The certificate of this side, or None for an unencrypted transport.
    """

    def __init__(self, websocket: WebSocket, identity: TunnelIdentity | None) -> None:
        self._websocket = websocket
        self._channel = SecureChannel(identity) if identity is not None else None
        self._deliver: Callable[[bytes], None] = lambda _plaintext: None
        self._lost: asyncio.Future[NoReturn] = asyncio.get_running_loop().create_future()
        """Raises the error that ended `deliver_to`."""

    def __repr__(self) -> str:
        return f"<Transport {self._websocket!r} {self._channel!r}>"

    async def start(self) -> bytes:
        """Perform the TLS handshake; return plaintext that was received with its last message.

        Raises:
            TunnelKeyMissing, WrongTunnelKey: the two sides do not share a tunnel key.
            ConnectionLost, ProtocolError: the transport closed, or the peer does not use the tunnel protocol.
        """
        plaintext = b""
        if self._channel is not None:
            self._flush(self._channel)
            while self._channel.state is ChannelState.HANDSHAKE:
                plaintext += await self.receive()
        return plaintext

    async def receive(self) -> bytes:
        """Return the next plaintext; b"" if the received bytes were TLS messages only.

        Raises:
            ConnectionLost: the transport is closed.
            ProtocolError, TunnelKeyMissing, WrongTunnelKey: the peer violates the protocol.
        """
        plaintext = b""
        if not self._close_received:
            plaintext = self._decrypted(await self._websocket.receive_chunk())
        if self._close_received and not plaintext:  # return plaintext received before the close_notify first
            raise _closed_by_peer()
        return plaintext

    async def deliver_to(self, receiver: Callable[[bytes], None]) -> NoReturn:
        """Call `receiver` with plaintext as it arrives, until the transport closes.

        Args:
            receiver: Must accept all data, and must not raise.

        Raises:
            The same errors as `receive`.
        """
        self._deliver = receiver
        self._websocket.deliver_to(self._received, lost=self._end)
        await self._lost

    @property
    def has_room(self) -> bool:
        """Whether the transport is open and its write buffer is below the limit."""
        return self._websocket.has_room

    def write(self, buffers: Iterable[Buffer]) -> None:
        """Send buffers, in order, as one message; check `has_room` first."""
        self._websocket.write(self._encrypted(buffers))

    async def drain(self) -> None:
        """Wait until `has_room`.

        Raises:
            ConnectionLost: the transport is closed.
        """
        await self._websocket.drain()

    async def send(self, buffers: Iterable[Buffer]) -> None:
        """Send buffers, in order, as one message; return when the socket accepts more.

        Raises:
            ConnectionLost: the transport is closed.
        """
        await self._websocket.send(self._encrypted(buffers))

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the TLS channel and then the WebSocket, gracefully."""
        # The close_notify proves to the peer that nothing was truncated; a WebSocket Close does not, because the relay
        # could forge it.
        if self._channel is not None and (close_notify := self._channel.close()):
            self._websocket.write(close_notify)
        await self._websocket.close(code, reason)

    def abort(self) -> None:
        """Drop the connection immediately."""
        self._websocket.abort()

    @property
    def _close_received(self) -> bool:
        return self._channel is not None and self._channel.is_closed

    def _received(self, data: bytes) -> None:
        if self._lost.done():  # bytes that arrived after an error are not trusted
            return
        try:
            plaintext = self._decrypted(data)
        except RelayDebugError as error:
            self._end(error)
            return
        if plaintext:
            self._deliver(plaintext)
        if self._close_received:
            self._end(_closed_by_peer())

    def _end(self, error: RelayDebugError) -> None:
        if not self._lost.done():
            self._lost.set_exception(error)

    def _encrypted(self, buffers: Iterable[Buffer]) -> bytes:
        return b"".join(buffers) if self._channel is None else self._channel.seal(buffers)

    def _decrypted(self, data: bytes) -> bytes:
        if self._channel is None:
            return data
        try:
            return self._channel.feed(data)
        finally:  # also after an error: the TLS alert shows the peer the reason
            self._flush(self._channel)

    def _flush(self, channel: SecureChannel) -> None:
        """Send handshake messages and alerts; they are short, so they ignore the limit of the write buffer."""
        if pending := channel.data_to_send():
            self._websocket.write(pending)


def _closed_by_peer() -> ConnectionLost:
    return ConnectionLost("the peer closed the transport", code=1000)
