"""Transport of a session: a rendezvous WebSocket, with TLS inside it if there is a tunnel key, and the handshake."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NoReturn

from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConnectionLost, Rejected, RelayDebugError, RelayUnreachable
from relay_core.net.session.secure_channel import ChannelState, SecureChannel, TunnelKeyMissing
from relay_core.net.session.tunnel_certificates import TunnelIdentity
from relay_core.net.websocket.connection import WebSocket
from relay_core.tunnel.frames import Buffer
from relay_core.tunnel.handshake import Attached, ClientHandshake, NotAttached
from relay_core.tunnel.limits import HANDSHAKE_TIMEOUT
from relay_core.tunnel.outcomes import Refusal, Role


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
        """Drop the connection immediately, without a close_notify."""
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


# The client's handshake on a new WebSocket: encryption, then HELLO or RESUME, with one time limit for both.


class SessionRefused(RelayDebugError):
    """The agent refused to start or to resume a session.

    Args:
        refusal: The reason code.
        text: The agent's message, or "".
    """

    exit_code = Rejected.exit_code

    def __init__(self, refusal: Refusal, text: str, *, hint: str = "") -> None:
        if refusal is Refusal.VERSION:
            hint = "install the same version of relay-debug on both sides"
        super().__init__(f"the agent refused the session: {text or refusal.name.lower()}", hint=hint)
        self.refusal = refusal


class TooManySessions(SessionRefused):
    """The agent has reached its limit on sessions; it accepts a new one once a client has disconnected."""

    retryable = True

    def __init__(self, text: str) -> None:
        hint = "wait until another client disconnects, or set RELAY_MAX_SESSIONS on the node to a higher limit"
        super().__init__(Refusal.BUSY, text, hint=hint)


async def perform_handshake(transport: Transport, handshake: ClientHandshake) -> Attached:
    """Perform the handshake and return the session with the transport's epoch; abort the transport on any error.

    Raises:
        SessionRefused: the agent refused the session.
        TooManySessions: the agent has no room for a session at the moment.
        TunnelKeyMissing, WrongTunnelKey: client and agent do not share a tunnel key.
        RelayUnreachable: no answer in time.
        ConnectionLost, ProtocolError: the transport closed, or the peer is not an agent.
    """
    try:
        async with timeout(HANDSHAKE_TIMEOUT):
            data = await transport.start()
            await transport.send([handshake.request])
            outcome: Attached | NotAttached | None = None
            while outcome is None:
                outcome = handshake.receive_data(data or await transport.receive(), asyncio.get_running_loop().time())
                data = b""
    except BaseException as error:  # also if cancelled: nothing else would close the transport
        transport.abort()
        if isinstance(error, TIMEOUT_ERRORS):
            raise RelayUnreachable(
                f"the agent accepted the connection but sent nothing for {HANDSHAKE_TIMEOUT:g} s",
                hint="check whether the agent is overloaded, or whether a listener other than relay-agent is using "
                "this hybrid connection",
            ) from None
        if isinstance(error, ConnectionLost):
            raise ConnectionLost(
                "the relay or the agent closed the connection during the handshake",
                hint="check whether a proxy interrupts WebSockets, or whether a listener other than relay-agent is "
                "using this hybrid connection",
                code=error.code,
                reason=error.reason,
            ) from None
        raise
    if isinstance(outcome, NotAttached):  # a refusal is the agent's last message on a transport
        transport.abort()
        if outcome.refusal is Refusal.KEY_MISMATCH:
            raise TunnelKeyMissing(Role.CLIENT)
        if outcome.refusal is Refusal.BUSY:
            raise TooManySessions(outcome.text)
        raise SessionRefused(outcome.refusal, outcome.text)
    return outcome
