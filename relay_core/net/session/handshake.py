"""The client's handshake on a new WebSocket: encryption, then HELLO or RESUME, with one time limit for both."""

from __future__ import annotations

import asyncio

from relay_core import exit_codes
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConnectionLost, RelayDebugError, RelayUnreachable
from relay_core.net.session.secure_channel import TunnelKeyMissing
from relay_core.net.session.transport import Transport
from relay_core.tunnel.handshake import Attached, ClientHandshake, NotAttached
from relay_core.tunnel.limits import HANDSHAKE_TIMEOUT
from relay_core.tunnel.outcomes import Refusal, Role

__all__ = ["SessionRefused", "TooManySessions", "perform_handshake"]


class SessionRefused(RelayDebugError):
    """The agent refused to start or to resume a session.

    Args:
        refusal: The reason code.
        text: The agent's message, or "".
    """

    exit_code = exit_codes.REJECTED

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
            await transport.send([handshake.data_to_send()])
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
