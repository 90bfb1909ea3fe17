"""The client's handshake on a fresh websocket: encryption, then HELLO or RESUME, with a deadline for both."""

from __future__ import annotations

import asyncio

from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import RelayDebugError, RelayUnreachable
from relay_core.net.session.secure_channel import TunnelKeyMissing
from relay_core.net.session.transport import Transport
from relay_core.tunnel.handshake import Attached, ClientHandshake, NotAttached
from relay_core.tunnel.limits import HANDSHAKE_TIMEOUT
from relay_core.tunnel.outcomes import Refusal, Role

__all__ = ["SessionRefused", "shake_hands"]


class SessionRefused(RelayDebugError):
    """The agent did not grant a session or its resume.

    Args:
        refusal: Why.
        text: The agent's sentence.
    """

    exit_code = 10

    def __init__(self, refusal: Refusal, text: str) -> None:
        hint = "install the same version of relay-debug on both sides" if refusal is Refusal.VERSION else ""
        super().__init__(f"the agent refused the session: {text or refusal.name.lower()}", hint=hint)
        self.refusal = refusal


async def shake_hands(transport: Transport, handshake: ClientHandshake) -> Attached:
    """Return what the transport is attached to; on any error the transport is dropped.

    Raises:
        SessionRefused: the agent said no.
        TunnelKeyMissing, WrongTunnelKey: the sides do not share a tunnel key.
        RelayUnreachable: no answer in time.
        ConnectionLost, ProtocolError: the transport ended, or the peer is no agent.
    """
    try:
        async with timeout(HANDSHAKE_TIMEOUT):
            data = await transport.start()
            await transport.send([handshake.data_to_send()])
            outcome: Attached | NotAttached | None = None
            while outcome is None:
                outcome = handshake.receive_data(data or await transport.receive(), asyncio.get_running_loop().time())
                data = b""
    except BaseException as error:
        transport.abort()
        if isinstance(error, TIMEOUT_ERRORS):
            raise RelayUnreachable(
                f"the agent took the connection and said nothing for {HANDSHAKE_TIMEOUT:g} s",
                hint="it may be too busy, or a listener that is no relay-agent uses this hybrid connection",
            ) from None
        raise
    if isinstance(outcome, NotAttached):
        transport.abort()
        if outcome.refusal is Refusal.KEY_MISMATCH:
            raise TunnelKeyMissing(Role.CLIENT)
        raise SessionRefused(outcome.refusal, outcome.text)
    return outcome
