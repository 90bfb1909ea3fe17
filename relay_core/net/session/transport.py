"""One rendezvous websocket as a transport for a session: bytes both ways, encrypted if there is a tunnel key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NoReturn

from relay_core.errors import ConnectionLost, RelayDebugError
from relay_core.net.session.secure_channel import ChannelState, SecureChannel, TunnelIdentity
from relay_core.net.websocket.handshake import WebSocket
from relay_core.tunnel.frames import Buffer

__all__ = ["Transport"]


class Transport:
    """A websocket, and the TLS channel inside it.

    A handshake asks for its bytes with `receive`. The session then has them delivered, which spares the event loop a
    turn for each message.

    Args:
        websocket: Open; owned from now on.
        identity: This side's certificate, or None for a transport in the clear.
    """

    def __init__(self, websocket: WebSocket, identity: TunnelIdentity | None) -> None:
        self._websocket = websocket
        self._channel = SecureChannel(identity) if identity is not None else None
        self._deliver: Callable[[bytes], None] = lambda _plaintext: None
        self._lost: asyncio.Future[NoReturn] = asyncio.get_running_loop().create_future()
        """Raises what ended the delivery."""

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
            self._flush(self._channel)
            while self._channel.state is ChannelState.HANDSHAKE:
                plaintext += await self.receive()
        return plaintext

    async def receive(self) -> bytes:
        """Return what comes next; b"" for bytes that carried none of the peer's.

        Raises:
            ConnectionLost: the transport has ended.
            ProtocolError, TunnelKeyMissing, WrongTunnelKey: the peer breaks the rules.
        """
        plaintext = b""
        if not self._said_goodbye:
            plaintext = self._decrypted(await self._websocket.receive_chunk())
        if self._said_goodbye and not plaintext:  # what came before the goodbye comes first
            raise _goodbye()
        return plaintext

    async def deliver_to(self, receiver: Callable[[bytes], None]) -> NoReturn:
        """Hand over what comes, as it comes, until the transport ends.

        Args:
            receiver: Takes everything, and must not raise.

        Raises:
            As `receive`.
        """
        self._deliver = receiver
        self._websocket.deliver_to(self._received, lost=self._end)
        await self._lost

    @property
    def has_room(self) -> bool:
        """Whether the transport has not ended and takes more."""
        return self._websocket.has_room

    def write(self, buffers: Iterable[Buffer]) -> None:
        """Send buffers, in order, as one message, while there is room."""
        self._websocket.write(self._encrypted(buffers))

    async def drain(self) -> None:
        """Wait until there is room.

        Raises:
            ConnectionLost: the transport has ended.
        """
        await self._websocket.drain()

    async def send(self, buffers: Iterable[Buffer]) -> None:
        """Send buffers, in order, as one message; returns when the socket can take more.

        Raises:
            ConnectionLost: the transport has ended.
        """
        await self._websocket.send(self._encrypted(buffers))

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """End in order."""
        if self._channel is not None and (goodbye := self._channel.close()):
            self._websocket.write(goodbye)
        await self._websocket.close(code, reason)

    def abort(self) -> None:
        """Drop it at once."""
        self._websocket.abort()

    @property
    def _said_goodbye(self) -> bool:
        return self._channel is not None and self._channel.state is ChannelState.CLOSED

    def _received(self, data: bytes) -> None:
        if self._lost.done():
            return
        try:
            plaintext = self._decrypted(data)
        except RelayDebugError as error:
            self._end(error)
            return
        if plaintext:
            self._deliver(plaintext)
        if self._said_goodbye:
            self._end(_goodbye())

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
        finally:
            self._flush(self._channel)

    def _flush(self, channel: SecureChannel) -> None:
        """Send handshake messages and alerts, which are few and do not wait for room."""
        if pending := channel.data_to_send():
            self._websocket.write(pending)


def _goodbye() -> ConnectionLost:
    return ConnectionLost("the other side closed the transport", code=1000)
