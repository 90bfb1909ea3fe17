"""The client's end of a session with one agent: starts it, and resumes it on a new transport after a loss.

                 PONG                        lost, dead                      final refusal, GOAWAY, grace expired
    CONNECTING ------> CONNECTED <---+---> RECONNECTING ---+---------------------------------------> OVER
                          |          |         |           |
                       silence -> SILENT       +-- PONG ---+-> CONNECTED

The state becomes CONNECTED only after a PONG on the current transport, and SILENT when no data is received for a while.

Why one loop for three reasons: a lost transport, a transport that may be closed soon and one that is 23 hours old all
end in `_attach_again`, and only `run` calls it. So epochs increase in the order of the attempts, and two resumes of one
session never compete, which the agent would answer with STALE_EPOCH. The agent takes the new transport while the old
one still works, so a planned replacement loses no time; if it fails, the old transport carries the session during the
next attempts.

Why CONNECTED needs a PONG: RESUMED proves that the agent has the session and that the path worked at that moment. After
a resume, the frames that were sent again are the first real load, and a path that drops them looks connected. The first
PING of each transport is sent at once (`Liveness.ping_due`), so the proof costs one round trip.

What was rejected: to reset the backoff at each handshake, because a relay that accepts connections and drops them would
be dialled without delay, and to reset it only after `HEALTHY_AFTER` seconds, because a developer who works over a path
that breaks every 20 s would wait longer each time. Received frames count as well, therefore.

Ugly: `hurry` sets an event that is cleared before each wait. A call during an attempt has no effect beyond it, although
such an attempt may take 10 s to fail. To cancel it instead would abandon an attempt that is about to succeed each time
another tunnel reconnects, because that is when `hurry` is called.
"""

from __future__ import annotations

import asyncio
import enum
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from relay_core.errors import RelayDebugError
from relay_core.hyco.backoff import AttemptBudget, Backoff
from relay_core.net.session.driver import SessionDriver
from relay_core.net.session.stream import SessionStream
from relay_core.net.session.transport import Transport, perform_handshake
from relay_core.net.session.tunnel_certificates import TunnelIdentity
from relay_core.net.tasks import TaskSet, first_completed
from relay_core.net.websocket.connection import WebSocket
from relay_core.tunnel.events import StreamOpened
from relay_core.tunnel.handshake import Attached, HelloHandshake, ResumeHandshake
from relay_core.tunnel.limits import PROBE_TIMEOUT, Settings
from relay_core.tunnel.messages import NONCE_SIZE

# Detection of system sleep: the wall clock advances during sleep and the monotonic clock does not (Linux, macOS).

TICK = 1.0
"""Seconds between comparisons of the clocks."""
JUMP = 5.0
"""Difference in seconds between the clocks in one tick that counts as sleep; NTP steps are usually smaller."""


async def watch_clock(on_tick: Callable[[bool], None]) -> None:
    """Call `on_tick(woke_up)` every second until cancelled.

    Args:
        on_tick: `woke_up` is True in the first tick after a sleep.
    """
    loop = asyncio.get_running_loop()
    while True:
        before_wall, before = time.time(), loop.time()
        await asyncio.sleep(TICK)
        on_tick((time.time() - before_wall) - (loop.time() - before) > JUMP)


MAX_TRANSPORT_AGE = 23 * 3600.0
"""Seconds after which a working transport is replaced, because Azure closes connections after 24 hours."""
SILENCE_MARGIN = PROBE_TIMEOUT
"""Seconds that a PING may remain unanswered before the state becomes SILENT."""
GOODBYE_TIMEOUT = 2.0
"""Seconds for the agent to confirm the end of the session."""


class LinkState(enum.Enum):
    """The state of the session, with the text that users see."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    SILENT = "not answering"
    RECONNECTING = "reconnecting"
    OVER = "lost"


@dataclass(frozen=True)
class LinkStatus:
    """A state with its details."""

    state: LinkState
    since: float
    """Unix seconds; while reconnecting, the time at which the transport was lost."""
    reason: str = ""
    """Why the session is not connected, or ""."""
    round_trip: float | None = None
    """Seconds, once measured."""


class ClientTunnel:
    """A session with one agent; `run()` keeps it attached to a transport.

    Args:
        attached: The session and its first epoch, from `begin`.
        transport: The first transport, from `begin`.
        dial: Returns a WebSocket to the same agent, for a resume.
        identity: The client's certificate, or None for an unencrypted tunnel.
        settings: The settings that were passed to `begin`.
        on_change: Called with each new status.
        on_info: Called when the agent has sent a new announcement; `agent_info` then has it.
        on_open: Called with each stream that the agent opens and its event; must accept or refuse the stream. By
            default, all are refused.
        budget: The budget of prompt attempts, shared by all tunnels through the same relay.
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
        budget: AttemptBudget | None = None,
    ) -> None:
        self.agent_info: Mapping[str, object] = attached.session.peer.info
        """The agent's announcement, updated with each status that it sends."""
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
        """Set to end the current backoff delay early."""
        self._replace = asyncio.Event()
        """Set when the current transport may close soon and should be replaced before it closes."""
        self._backoff = Backoff(random.random)
        self._budget = budget or AttemptBudget()
        self._progress = 0
        """Value of `received` in the session when the last transport ended."""
        self._tasks = TaskSet()

    @staticmethod
    async def begin(
        websocket: WebSocket, identity: TunnelIdentity | None, *, settings: Settings, info: Mapping[str, object]
    ) -> tuple[Attached, Transport]:
        """Start a session on a new WebSocket.

        Raises:
            The same errors as `perform_handshake`.
        """
        transport = Transport(websocket, identity)
        return await perform_handshake(transport, HelloHandshake(settings, info)), transport

    @staticmethod
    async def decline(attached: Attached, transport: Transport, text: str) -> None:
        """Gracefully close a session that was started but is not needed."""
        driver = SessionDriver(attached.session)
        async with TaskSet() as tasks:
            carrying = tasks.spawn(driver.run_transport(transport, attached.epoch, attached.trailing), name="goodbye")
            await driver.close(text, within=GOODBYE_TIMEOUT)
            await asyncio.wait({carrying}, timeout=GOODBYE_TIMEOUT)

    @property
    def usable(self) -> bool:
        """Whether the session has a transport, so that a new stream reaches the agent."""
        return self._session.attached and not self._session.over

    async def run(self) -> None:
        """Keep the session attached until it is over; cancelling drops the transport without ending the session."""
        async with self._tasks:
            self._tasks.spawn(watch_clock(self._on_tick), name="watch the clock")
            current = self._carry(*self._first)
            attached_at = asyncio.get_running_loop().time()
            while not self._session.over:
                # Returns when the transport is lost, may be lost soon, or is old; in all cases a new one is
                # attached.
                await first_completed(current, self._replace.wait(), self.driver.over.wait(), timeout=MAX_TRANSPORT_AGE)
                self._replace.clear()
                if current.done() and not self._session.over:
                    self._set(LinkState.RECONNECTING, current.result())
                    self._reset_backoff_if_healthy(attached_at)
                attached_at = asyncio.get_running_loop().time()
                next_one = await self._attach_again()
                if next_one is not None:
                    current = self._carry(*next_one)
            over = self._session.over
            self._set(LinkState.OVER, over.text or over.reason.value)

    async def close(self, text: str) -> None:
        """End the session gracefully; `text` is the reason that the agent logs."""
        await self.driver.close(text, within=GOODBYE_TIMEOUT)

    def hurry(self) -> None:
        """Dial again immediately, without waiting for the backoff delay."""
        self._hurry.set()

    def replace_transport(self) -> None:
        """Attach a new transport now, because the current one may close soon."""
        self._replace.set()

    def _carry(self, transport: Transport, attached: Attached) -> asyncio.Task[str]:
        carrying = self.driver.run_transport(transport, attached.epoch, attached.trailing)
        return self._tasks.spawn(carrying, name=f"transport {attached.epoch}")

    def _reset_backoff_if_healthy(self, attached_at: float) -> None:
        """Reset the backoff if the last transport was healthy: it lasted long enough, or it carried data."""
        duration = asyncio.get_running_loop().time() - attached_at
        if self._session.received > self._progress or self._backoff.is_healthy(duration):
            self._backoff.reset()
        self._progress = self._session.received

    async def _attach_again(self) -> tuple[Transport, Attached] | None:
        """Attach a new transport after a loss or as a replacement; return None if the session is over."""
        prompt = self._is_prompt_allowed()
        while not self._session.over:
            self._hurry.clear()
            delay = self._backoff.next_delay(prompt=prompt)
            await first_completed(self._hurry.wait(), self.driver.over.wait(), timeout=delay)
            if self._session.over:
                break
            try:
                # The agent accepts a resume while the old transport still works, and then drops the old transport, so a
                # replacement causes no interruption.
                transport = Transport(await self._dial(), self._identity)
                handshake = ResumeHandshake(self._session, os.urandom(NONCE_SIZE))
                return transport, await perform_handshake(transport, handshake)
            except RelayDebugError as error:
                self.driver.follow_up()  # a refused resume may have ended the session
                prompt = error.allows_prompt_retry and self._is_prompt_allowed()
                if not self.usable:
                    self._set(LinkState.RECONNECTING, error.sentence)
        return None

    def _is_prompt_allowed(self) -> bool:
        """Return whether a debugger is waiting for the next attempt and the budget allows a prompt attempt."""
        is_needed = bool(self.driver.streams) and not self.usable
        return is_needed and self._budget.take(asyncio.get_running_loop().time())

    def _on_tick(self, woke_up: bool) -> None:
        if woke_up:  # the network path probably changed during sleep: test the transport now, and dial without delay
            self.driver.probe(PROBE_TIMEOUT)
            self.hurry()
        silent = asyncio.get_running_loop().time() - self.driver.received_at > self._silence_limit
        if self.status.state is LinkState.CONNECTED and silent:
            self._set(LinkState.SILENT, f"no data received for more than {self._silence_limit:g} s")
        elif self.status.state is LinkState.SILENT and not silent:
            self._set(LinkState.CONNECTED, round_trip=self.status.round_trip)

    def _on_round_trip(self, seconds: float) -> None:
        # Only a PONG proves that the session carries data in both directions; a handshake does not.
        self._set(LinkState.CONNECTED, round_trip=seconds)

    def _on_status(self, status: Mapping[str, object]) -> None:
        self.agent_info = status
        self._on_info()

    def _set(self, state: LinkState, reason: str = "", round_trip: float | None = None) -> None:
        before = self.status
        since = before.since if state is before.state else time.time()
        self.status = LinkStatus(state, since, reason, round_trip)
        # The round trip changes with every PING and is not reported.
        if (state, reason) != (before.state, before.reason):
            self._on_change(self.status)
