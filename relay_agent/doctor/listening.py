"""Check that the relay lets this machine listen on the hybrid connection."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import uuid

from relay_core.auth import Access
from relay_core.diagnosis.access import TOKEN
from relay_core.diagnosis.checks import Examination, Skipped
from relay_core.diagnosis.server import ANSWER
from relay_core.errors import HybridConnectionNotFound, RelayDebugError, TooManyListeners
from relay_core.hyco.address import Endpoint
from relay_core.hyco.listener import ListenerState
from relay_core.hyco.sas import Credential, Token
from relay_core.net.hybrid.listener import HybridConnectionListener, Offer
from relay_core.net.session.secure_channel import NO_TUNNEL_KEY
from relay_core.net.tasks import first_completed
from relay_core.tunnel.handshake import MISDIRECTED, misdirected

__all__ = ["ListeningChecks"]

RIGHT, HYBRID_CONNECTION, LISTENER, TUNNEL_KEY = "Listen right", "hybrid connection", "listener", "tunnel key"


class ListeningChecks:
    """Listens for a moment, as the agent does, and reports what the relay answers.

    A client that reaches this listener in that moment is referred to the other agents.

    Args:
        access: The hybrid connection and the credential.
        tls: Verifies the certificate of the relay.
    """

    def __init__(self, access: Access, tls: ssl.SSLContext) -> None:
        self._access = access
        self._tls = tls
        self._error: RelayDebugError | None = None

    async def run(self, examination: Examination) -> None:
        """Run the checks in order."""
        await examination.check(RIGHT, self._right, after=[ANSWER, TOKEN])
        await examination.check(HYBRID_CONNECTION, self._hybrid_connection, after=[RIGHT])
        await examination.check(LISTENER, self._listener, after=[HYBRID_CONNECTION])
        await examination.check(TUNNEL_KEY, self._tunnel_key)

    async def _right(self) -> str:
        await self._listen()
        if isinstance(self._error, HybridConnectionNotFound):
            raise Skipped("the relay did not check the token's rights")
        if self._error is not None and not isinstance(self._error, TooManyListeners):
            raise self._error
        return "the relay accepts the token for listening"

    async def _listen(self) -> None:
        """Listen until the relay has accepted or refused, and keep the error of a refusal."""
        decided: asyncio.Future[RelayDebugError | None] = asyncio.get_running_loop().create_future()

        def on_state(_state: ListenerState, error: RelayDebugError | None) -> None:
            if not decided.done():
                decided.set_result(error)

        listener_id = str(uuid.uuid4())
        access = self._access
        listener = HybridConnectionListener(
            access.endpoint,
            _WithoutRetries(access.credential),
            listener_id=listener_id,
            tls=self._tls,
            on_state=on_state,
        )
        async with listener:
            await first_completed(decided, _refer(listener, listener_id))
        self._error = decided.result() if decided.done() else None

    async def _hybrid_connection(self) -> str:
        if isinstance(self._error, HybridConnectionNotFound):
            raise self._error
        return f"'{self._access.endpoint.path}' exists"

    async def _listener(self) -> str:
        if self._error is not None:
            raise self._error
        return "the relay accepts another listener"

    async def _tunnel_key(self) -> str:
        if self._access.tunnel_key is None:
            raise Skipped(NO_TUNNEL_KEY)
        return "set; run 'relay-client doctor' to check that the client has the same key"


class _WithoutRetries:
    """A credential whose refusal is reported immediately, even though its role may be new and not yet in effect."""

    role_grace = 0.0

    def __init__(self, credential: Credential) -> None:
        self._credential = credential

    def __repr__(self) -> str:
        return repr(self._credential)

    async def token(self, endpoint: Endpoint) -> Token:
        return await self._credential.token(endpoint)

    def refused(self) -> None:
        self._credential.refused()


async def _refer(listener: HybridConnectionListener, listener_id: str) -> None:
    """Refuse all clients until cancelled, as an agent does with clients of another agent."""
    async for offer in listener:
        await _refuse(offer, listener_id)


async def _refuse(offer: Offer, listener_id: str) -> None:
    with contextlib.suppress(RelayDebugError):  # the client has disconnected
        await offer.reject(MISDIRECTED, misdirected("relay-agent doctor is checking the relay", listener_id))
