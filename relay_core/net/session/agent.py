"""The agent's end of all its sessions: which accepted websocket belongs to which, and how long each is kept."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from relay_core.agent_api.metadata import ClientInfo
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConnectionLost, RelayDebugError
from relay_core.net.session.driver import SessionDriver
from relay_core.net.session.secure_channel import TunnelIdentity
from relay_core.net.session.stream import SessionStream
from relay_core.net.session.transport import Transport
from relay_core.net.websocket.handshake import WebSocket
from relay_core.tunnel.events import StreamOpened
from relay_core.tunnel.handshake import Attached, NotAttached
from relay_core.tunnel.limits import HANDSHAKE_TIMEOUT, Settings
from relay_core.tunnel.session import Session
from relay_core.tunnel.sessions import ENTROPY_SIZE, AgentHandshake, SessionTable

__all__ = ["AgentTunnels", "Grace"]

GOODBYE_TIMEOUT = 2.0
"""Seconds for the clients to confirm a goodbye."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Grace:
    """Seconds that a session survives without a transport."""

    idle: float = 120.0
    """While no stream is open."""
    in_use: float = 1800.0
    """While one is: a debugger is attached, and letting go of it would wake the job up."""


class AgentTunnels:
    """The sessions of one agent.

    Args:
        identity: This side's certificate, or None for tunnels in the clear.
        info: What each client is told about this agent.
        on_open: Called with the driver, the stream and the event for each stream that a client opens.
        on_status: Called with each status that a client sends.
        settings: Limits and timers.
        grace: How long sessions are kept.
    """

    def __init__(
        self,
        identity: TunnelIdentity | None,
        *,
        info: Mapping[str, object],
        on_open: Callable[[SessionDriver, SessionStream, StreamOpened], None],
        on_status: Callable[[Mapping[str, object]], None] = lambda _status: None,
        settings: Settings | None = None,
        grace: Grace | None = None,
    ) -> None:
        self.table = SessionTable(settings or Settings(), info=info)
        self._identity = identity
        self._on_open = on_open
        self._on_status = on_status
        self._grace = grace or Grace()
        self._drivers: dict[bytes, SessionDriver] = {}

    def __repr__(self) -> str:
        return f"<AgentTunnels {self.table!r}>"

    @property
    def streams(self) -> int:
        """Streams in use, over all sessions."""
        return sum(driver.streams for driver in self._drivers.values())

    def has_session_of(self, client: str) -> bool:
        """Whether a client that calls itself so has a session whose transport works."""
        return any(session.attached and ClientInfo.parse(session.peer.info).client == client for session in self.table)

    async def serve(self, websocket: WebSocket) -> None:
        """Use one accepted websocket for as long as it lasts.

        Raises:
            TunnelKeyMissing, WrongTunnelKey, ConnectionLost, ProtocolError: it could not be used, and why.
        """
        transport = Transport(websocket, self._identity)
        try:
            async with timeout(HANDSHAKE_TIMEOUT):
                outcome = await self._shake_hands(transport)
        except BaseException as error:
            await _leave(transport)
            if isinstance(error, TIMEOUT_ERRORS):
                raise ConnectionLost(f"a client said nothing for {HANDSHAKE_TIMEOUT:g} s") from None
            raise
        if isinstance(outcome, NotAttached):
            await transport.send([outcome.reply])
            await transport.close()
            raise ConnectionLost(f"refused a session: {outcome.refusal.name.lower().replace('_', ' ')}: {outcome.text}")
        await self._run(transport, outcome)

    def send_status(self, status: Mapping[str, object]) -> None:
        """Tell every client, and those to come."""
        self.table.info = {**self.table.info, **status}
        for driver in self._drivers.values():
            driver.send_status(self.table.info)  # a session away keeps the newest status only

    async def close(self, text: str) -> None:
        """Say goodbye to every client."""
        await asyncio.gather(*(driver.close(text, within=GOODBYE_TIMEOUT) for driver in list(self._drivers.values())))

    async def _shake_hands(self, transport: Transport) -> Attached | NotAttached:
        handshake = AgentHandshake(self.table, os.urandom(ENTROPY_SIZE))
        data = await transport.start()
        while True:
            outcome = handshake.receive_data(data, asyncio.get_running_loop().time()) if data else None
            if outcome is not None:
                return outcome
            data = await transport.receive()

    async def _run(self, transport: Transport, attached: Attached) -> None:
        session = attached.session
        driver = self._drivers.get(session.id) or self._drive(session)
        who = ClientInfo.parse(session.peer.info).user or "a client"
        logger.info("%s %s", who, "connected" if attached.new else "is back")
        reason = await driver.run_transport(transport, attached.epoch, attached.trailing, attached.reply)
        if session.over:
            logger.info("%s left: %s", who, session.over.text or session.over.reason.value)
        elif not session.attached:
            logger.info("%s is away (%s); its connections are kept for %.0f s", who, reason, session.grace)

    def _drive(self, session: Session) -> SessionDriver:
        def opened(stream: SessionStream, event: StreamOpened) -> None:
            self._on_open(driver, stream, event)

        def streams_changed() -> None:
            session.grace = self._grace.in_use if driver.streams else self._grace.idle

        def over() -> None:
            self._drivers.pop(session.id, None)
            self.table.sweep(asyncio.get_running_loop().time())

        driver = SessionDriver(
            session, on_open=opened, on_status=self._on_status, on_streams=streams_changed, on_over=over
        )
        session.grace = self._grace.idle
        self._drivers[session.id] = driver
        return driver


async def _leave(transport: Transport) -> None:
    """Let a refusal or a TLS alert reach the peer, then close."""
    try:
        await transport.close()
    except RelayDebugError:
        transport.abort()
