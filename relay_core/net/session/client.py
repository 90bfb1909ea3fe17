"""The client's end of one session: begun with an agent, and kept attached whatever happens to its transports.

                 PONG                        lost, dead                      final refusal, GOAWAY, grace expired
    CONNECTING ------> CONNECTED <---+---> RECONNECTING ---+---------------------------------------> OVER
                          |          |         |           |
                       silence -> SILENT       +-- PONG ---+-> CONNECTED

CONNECTED is claimed only after an answer was heard on the transport in use, and given up when nothing is heard.
"""

from __future__ import annotations

import asyncio
import enum
import os
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from relay_core.errors import RelayDebugError
from relay_core.hyco.backoff import Backoff
from relay_core.net.session.driver import SessionDriver
from relay_core.net.session.handshake import shake_hands
from relay_core.net.session.secure_channel import TunnelIdentity
from relay_core.net.session.stream import SessionStream
from relay_core.net.session.transport import Transport
from relay_core.net.session.wakeup import watch_clock
from relay_core.net.tasks import TaskSet, first_completed
from relay_core.net.websocket.handshake import WebSocket
from relay_core.tunnel.events import StreamOpened
from relay_core.tunnel.handshake import Attached, ClientHandshake
from relay_core.tunnel.limits import PROBE_TIMEOUT, Settings

__all__ = ["ClientTunnel", "LinkState", "LinkStatus"]

MAX_TRANSPORT_AGE = 23 * 3600.0
"""Seconds after which a transport is replaced while it still works; Azure recycles connections every 24 hours."""
SILENCE_MARGIN = PROBE_TIMEOUT
"""Seconds a PING may stay without an answer before the link is called silent."""
GOODBYE_TIMEOUT = 2.0
"""Seconds for the agent to confirm a goodbye."""
NONCE_SIZE = 16


class LinkState(enum.Enum):
    """How the session stands, as users see it."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    SILENT = "not answering"
    RECONNECTING = "reconnecting"
    OVER = "lost"


@dataclass(frozen=True)
class LinkStatus:
    """A state, and what there is to know about it."""

    state: LinkState
    since: float
    """Unix seconds; a reconnecting link keeps the time of its loss."""
    reason: str = ""
    """Why it is not connected."""
    round_trip: float | None = None
    """Seconds, once measured."""


class ClientTunnel:
    """A session with one agent; `run()` keeps it attached.

    Args:
        attached: The session and its first transport, from `begin`.
        transport: That transport.
        dial: Returns a websocket to the same agent, for a resume.
        identity: This side's certificate, or None for a tunnel in the clear.
        settings: Those that `begin` was given.
        on_change: Called with each new status of the link.
        on_info: Called when the agent has said something new about itself; `agent_info` has it.
        on_open: Called with each stream that the agent opens and what for; must accept or refuse. By default, none may.
    """

    def __init__(
        self,
        attached: Attached,
        transport: Transport,
        *,
        dial: Callable[[], Awaitable[WebSocket]],
        identity: TunnelIdentity | None,
        settings: Settings,
        on_change: Callable[[LinkStatus], None] = lambda _status: None,
        on_info: Callable[[], None] = lambda: None,
        on_open: Callable[[SessionStream, StreamOpened], None] | None = None,
    ) -> None:
        self.agent_info: Mapping[str, object] = attached.session.peer.info
        """What the agent said about itself, replaced by each status it sends."""
        self.status = LinkStatus(LinkState.CONNECTING, time.time())
        self.driver = SessionDriver(
            attached.session, on_open=on_open, on_status=self._on_status, on_round_trip=self._on_round_trip
        )
        self._session = attached.session
        self._first = (transport, attached)
        self._dial = dial
        self._identity = identity
        self._silence_limit = settings.ping_after + SILENCE_MARGIN
        self._on_change = on_change
        self._on_info = on_info
        self._hurry = asyncio.Event()
        """Set when waiting any longer before the next attempt makes no sense."""
        self._replace = asyncio.Event()
        """Set when the transport in use may end soon, so that the next one should be there before."""
        self._backoff = Backoff(random.random)
        self._progress = 0
        """The session's progress when the last transport ended."""
        self._tasks = TaskSet()

    def __repr__(self) -> str:
        return f"<ClientTunnel {self.status.state.value} {self._session!r}>"

    @staticmethod
    async def begin(
        websocket: WebSocket, identity: TunnelIdentity | None, *, settings: Settings, info: Mapping[str, object]
    ) -> tuple[Attached, Transport]:
        """Begin a session on a fresh websocket.

        Raises:
            As `shake_hands`.
        """
        transport = Transport(websocket, identity)
        return await shake_hands(transport, ClientHandshake.hello(settings, info)), transport

    @staticmethod
    async def decline(attached: Attached, transport: Transport, text: str) -> None:
        """Leave a session that was begun and is not needed, with a goodbye."""
        driver = SessionDriver(attached.session)
        async with TaskSet() as tasks:
            carrying = tasks.spawn(driver.run_transport(transport, attached.epoch, attached.trailing), name="goodbye")
            await driver.close(text, within=GOODBYE_TIMEOUT)
            await asyncio.wait({carrying}, timeout=GOODBYE_TIMEOUT)

    @property
    def usable(self) -> bool:
        """Whether a stream opened now would get through."""
        return self._session.attached and not self._session.over

    async def run(self) -> None:
        """Keep the session attached until it is over; cancelling ends it without a goodbye."""
        async with self._tasks:
            self._tasks.spawn(watch_clock(self._on_tick), name="watch the clock")
            current = self._carry(*self._first)
            attached_at = asyncio.get_running_loop().time()
            while not self._session.over:
                await self._first_of(current, self._replace.wait(), timeout=MAX_TRANSPORT_AGE)
                self._replace.clear()
                if current.done() and not self._session.over:
                    self._set(LinkState.RECONNECTING, current.result())
                    self._forgive(attached_at)
                attached_at = asyncio.get_running_loop().time()
                next_one = await self._attach_again()
                if next_one is not None:
                    current = self._carry(*next_one)
            self._set(LinkState.OVER, self._why_over())

    async def close(self, text: str) -> None:
        """Say goodbye to the agent."""
        await self.driver.close(text, within=GOODBYE_TIMEOUT)

    def hurry(self) -> None:
        """Dial again now."""
        self._hurry.set()

    def replace_transport(self) -> None:
        """Attach a new transport now, because the one in use may end soon."""
        self._replace.set()

    def _carry(self, transport: Transport, attached: Attached) -> asyncio.Task[str]:
        carrying = self.driver.run_transport(transport, attached.epoch, attached.trailing)
        return self._tasks.spawn(carrying, name=f"transport {attached.epoch}")

    def _forgive(self, attached_at: float) -> None:
        """Forget earlier failures if the transport that just ended was of use: it lived, or it carried something."""
        lived = asyncio.get_running_loop().time() - attached_at
        if self._session.received > self._progress or self._backoff.is_healthy(lived):
            self._backoff.reset()
        self._progress = self._session.received

    async def _attach_again(self) -> tuple[Transport, Attached] | None:
        """Attach a new transport, whether the old one has gone or is to be replaced; None if the session is over."""
        while not self._session.over:
            self._hurry.clear()
            await self._first_of(self._hurry.wait(), timeout=self._backoff.next_delay())
            if self._session.over:
                break
            try:
                transport = Transport(await self._dial(), self._identity)
                handshake = ClientHandshake.resume(self._session, os.urandom(NONCE_SIZE))
                return transport, await shake_hands(transport, handshake)
            except RelayDebugError as error:
                self.driver.catch_up()
                if not self.usable:
                    self._set(LinkState.RECONNECTING, error.sentence)
        return None

    async def _first_of(self, *awaitables: Coroutine[Any, Any, Any] | asyncio.Task[Any], timeout: float) -> None:
        """Wait for one of these, for the end of the session, or for the time to pass."""
        await first_completed(*awaitables, self.driver.over.wait(), timeout=timeout)

    def _on_tick(self, woke_up: bool) -> None:
        if woke_up:
            self.driver.probe(PROBE_TIMEOUT)
            self.hurry()
        silent = asyncio.get_running_loop().time() - self.driver.heard_at > self._silence_limit
        if self.status.state is LinkState.CONNECTED and silent:
            self._set(LinkState.SILENT, f"nothing heard for more than {self._silence_limit:g} s")
        elif self.status.state is LinkState.SILENT and not silent:
            self._set(LinkState.CONNECTED, round_trip=self.status.round_trip)

    def _on_round_trip(self, seconds: float) -> None:
        self._set(LinkState.CONNECTED, round_trip=seconds)

    def _on_status(self, status: Mapping[str, object]) -> None:
        self.agent_info = {**self.agent_info, **status}
        self._on_info()

    def _set(self, state: LinkState, reason: str = "", round_trip: float | None = None) -> None:
        before = self.status
        since = before.since if state is before.state else time.time()
        self.status = LinkStatus(state, since, reason, round_trip)
        if (state, reason) != (before.state, before.reason):
            self._on_change(self.status)

    def _why_over(self) -> str:
        over = self._session.over
        return "" if over is None else over.text or over.reason.value
