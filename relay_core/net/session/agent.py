"""The agent's sessions: assigns accepted WebSockets to them, and keeps sessions that have lost their transport.

    SessionTable        the sessions without I/O: which one a first frame belongs to, which one is replaced
    AgentTunnels        their drivers; one for each session, which outlives its transports
    shake_hands, run    one transport, first without a session and then with one

Why a handshake and a session are two calls: the agent limits handshakes in progress, not only sessions. If there is a
tunnel key, somebody who only has a Send key can begin handshakes, but cannot finish one. The place of a handshake is
free again before the session runs; in one call, 32 attached clients would occupy all places, and none of them could
resume on a new transport.

Why the grace period depends on streams: a session is all that keeps the agent's connection to debugpy. To close that
connection resumes the job and removes its breakpoints, which nobody who closes a laptop at a breakpoint expects, so a
session in use is kept for half an hour. With that period for all sessions, those of killed clients, which nobody will
resume, would stay for half an hour instead of two minutes.

Ugly: the table ends a session that is replaced, but has no way to call its driver, since it performs no I/O. So each
handshake looks at all drivers for sessions that are over. There are at most `max_sessions` of them.
"""

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
from relay_core.net.session.stream import SessionStream
from relay_core.net.session.transport import Transport
from relay_core.net.session.tunnel_certificates import TunnelIdentity
from relay_core.net.websocket.connection import WebSocket
from relay_core.records import parse
from relay_core.tunnel.events import StreamOpened
from relay_core.tunnel.handshake import Attached, NotAttached
from relay_core.tunnel.limits import HANDSHAKE_TIMEOUT, Settings
from relay_core.tunnel.session import Session
from relay_core.tunnel.session_table import ENTROPY_SIZE, AgentHandshake, SessionTable

FIRST_BYTES_TIMEOUT = 5.0
"""Timeout in seconds for a client's first bytes. They arrive one round trip after the client was accepted; a lost
packet adds 1 to 3 s."""
REFUSAL_TIMEOUT = 1.0
"""Seconds for a client to close its end after a refusal. Without a limit, a hostile client could keep the agent
busy."""
GOODBYE_TIMEOUT = 2.0
"""Seconds for the clients to confirm the end of their sessions."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Grace:
    """Seconds that a session survives without a transport."""

    idle: float = 120.0
    """While no stream is open."""
    in_use: float = 1800.0
    """While a stream is open: a debugger is attached, and detaching it would resume the job."""


class AgentTunnels:
    """The sessions of one agent.

    Args:
        identity: The agent's certificate, or None for unencrypted tunnels.
        info: The announcement that each client receives.
        on_open: Called with the driver, the stream and the event for each stream that a client opens.
        on_status: Called with each status that a client sends.
        on_over: Called when a session has ended.
        on_contact: Called when a session has lost its transport, or has a new one.
        settings: Limits and timers.
        grace: How long sessions are kept without a transport.
    """

    def __init__(
        self,
        identity: TunnelIdentity | None,
        *,
        info: Mapping[str, object],
        on_open: Callable[[SessionDriver, SessionStream, StreamOpened], None],
        on_status: Callable[[Mapping[str, object]], None] = lambda _status: None,
        on_over: Callable[[], None] = lambda: None,
        on_contact: Callable[[], None] = lambda: None,
        settings: Settings | None = None,
        grace: Grace | None = None,
    ) -> None:
        self.table = SessionTable(settings or Settings(), info=info)
        self._identity = identity
        self._on_open = on_open
        self._on_status = on_status
        self._on_over = on_over
        self._on_contact = on_contact
        self._grace = grace or Grace()
        self._drivers: dict[bytes, SessionDriver] = {}

    @property
    def statuses(self) -> list[Mapping[str, object]]:
        """The last status of each client that has sent one and whose session has not ended."""
        return [driver.peer_status for driver in self._drivers.values() if driver.peer_status is not None]

    @property
    def streams(self) -> int:
        """Number of streams in use, in all sessions."""
        return sum(driver.streams for driver in self._drivers.values())

    @property
    def in_contact(self) -> bool:
        """True if at least one session has a transport."""
        return any(session.attached for session in self.table)

    def has_session_of(self, client: str) -> bool:
        """Whether the client with this id has a session with a working transport."""
        return any(session.attached and parse(ClientInfo, session.peer.info).client == client for session in self.table)

    async def shake_hands(
        self, websocket: WebSocket, *, within: float = HANDSHAKE_TIMEOUT
    ) -> tuple[Transport, Attached]:
        """Perform the handshake on an accepted WebSocket; return its transport and its client's session, for `run`.

        Args:
            websocket: Owned by this call from now on.
            within: Seconds for the whole handshake. The first bytes must arrive within `FIRST_BYTES_TIMEOUT`.

        Raises:
            TunnelKeyMissing, WrongTunnelKey, ConnectionLost, ProtocolError: the handshake failed.
        """
        transport = Transport(websocket, self._identity)
        try:
            async with timeout(within):
                # The client sends first. A sender that sends nothing must not occupy a slot for the whole handshake.
                async with timeout(FIRST_BYTES_TIMEOUT):
                    await websocket.until_readable()
                outcome = await self._handshake(transport)
        except BaseException as error:
            # Not aborted: the TLS alert or the refusal that explains the failure may still be on its way.
            await _close_or_abort(transport)
            if isinstance(error, TIMEOUT_ERRORS):
                raise ConnectionLost("a client did not complete its handshake in time") from None
            raise
        for driver in list(self._drivers.values()):
            if driver.session.over:  # replaced by the new session
                driver.follow_up()
        if isinstance(outcome, NotAttached):
            await transport.send([outcome.reply])
            await _close_or_abort(transport)
            raise ConnectionLost(f"refused a session: {outcome.refusal.name.lower().replace('_', ' ')}: {outcome.text}")
        return transport, outcome

    def send_status(self, status: Mapping[str, object]) -> None:
        """Send a new announcement to every client; future clients receive it in their handshake."""
        self.table.info = dict(status)
        for driver in self._drivers.values():
            driver.send_status(self.table.info)  # a session without a transport queues the latest status only

    async def close(self, text: str) -> None:
        """End all sessions gracefully; `text` is the reason that the clients show."""
        await asyncio.gather(*(driver.close(text, within=GOODBYE_TIMEOUT) for driver in list(self._drivers.values())))

    async def _handshake(self, transport: Transport) -> Attached | NotAttached:
        # A RESUME does not need entropy, but the kind of the first frame is not known yet.
        handshake = AgentHandshake(self.table, os.urandom(ENTROPY_SIZE))
        data = await transport.start()
        while True:
            outcome = handshake.receive_data(data, asyncio.get_running_loop().time()) if data else None
            if outcome is not None:
                return outcome
            data = await transport.receive()

    async def run(self, transport: Transport, attached: Attached) -> None:
        """Run a session on a transport until the transport closes."""
        session = attached.session
        # A resumed session keeps its driver, with the streams and local sockets that have outlived the transport.
        driver = self._drivers.get(session.id) or self._add_driver(session)
        user = parse(ClientInfo, session.peer.info).user or "a client"
        logger.info("%s %s", user, "connected" if attached.new else "reconnected")
        self._on_contact()
        reason = await driver.run_transport(transport, attached.epoch, attached.trailing, attached.reply)
        if session.over:
            logger.info("%s disconnected: %s", user, session.over.text or session.over.reason.value)
        elif not session.attached:  # otherwise the client had already attached a new transport
            logger.info(
                "lost the transport to %s (%s); keeping its connections for %.0f s", user, reason, session.grace
            )
            self._on_contact()

    def _add_driver(self, session: Session) -> SessionDriver:
        def opened(stream: SessionStream, event: StreamOpened) -> None:
            self._on_open(driver, stream, event)

        def streams_changed() -> None:
            # While a debugger is attached, ending the session would resume the job and remove its breakpoints.
            session.grace = self._grace.in_use if driver.streams else self._grace.idle

        def over() -> None:
            self._drivers.pop(session.id, None)
            self.table.sweep(asyncio.get_running_loop().time())
            self._on_over()

        driver = SessionDriver(
            session, on_open=opened, on_status=self._on_status, on_streams=streams_changed, on_over=over
        )
        session.grace = self._grace.idle
        self._drivers[session.id] = driver
        return driver


async def _close_or_abort(transport: Transport) -> None:
    """Close gracefully, so that a refusal or a TLS alert reaches the peer; abort if that fails."""
    try:
        async with timeout(REFUSAL_TIMEOUT):
            await transport.close()
    except (RelayDebugError, *TIMEOUT_ERRORS):
        transport.abort()
