"""Table of attachments, that is, which client is connected to which target.

A debug target accepts one client at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import PureWindowsPath

from relay_agent.agent.targets import Target
from relay_core.agent_api.announcement import Attachment
from relay_core.errors import ConnectionLost
from relay_core.layers.stop_observer import ObservedStop
from relay_core.net.session.driver import SessionDriver

__all__ = ["Attachments", "DebugStream"]

ACK_INTERVAL = 0.01
"""Seconds between checks of whether a client has received everything."""
ANNOUNCE_DELAY = 0.5
"""Seconds that a process must stay stopped or running before that is announced: each step is a stop."""


@dataclass(frozen=True)
class _Stop:
    at: str
    """File name and line, or ""."""
    since: float = field(default_factory=time.time)


@dataclass
class _Holder:
    driver: SessionDriver
    user: str
    since: float = field(default_factory=time.time)
    streams: int = 0
    """Open streams; a debugger of a process with children has several."""
    running: set[DebugStream] = field(default_factory=set)
    """The streams whose debug session has not ended."""
    stops: dict[DebugStream, _Stop] = field(default_factory=dict)
    """Where the process and its children are stopped; the latest stop is the last one."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when `running` has changed."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def sentence(self) -> str:
        """The reason for refusing other clients, with user and time."""
        return f"held by {self.user} since {time.strftime('%H:%M', time.localtime(self.since))}"

    @property
    def attachment(self) -> Attachment:
        """Its announcement."""
        stop = next(reversed(self.stops.values()), None)
        if stop is None:
            return Attachment(self.user, self.since, is_stopped=False)
        return Attachment(self.user, self.since, is_stopped=True, stopped_at=stop.at, stopped_since=stop.since)


class DebugStream:
    """What one stream reports about its debug session."""

    def __init__(self, holder: _Holder, on_stop: Callable[[], None]) -> None:
        self._holder = holder
        self._on_stop = on_stop
        holder.running.add(self)

    def ended(self) -> None:
        """Take notice that the session has ended and its last bytes were passed to the tunnel session."""
        self._holder.running.discard(self)
        self._holder.stops.pop(self, None)
        self._holder.changed.set()

    def stopped(self, stop: ObservedStop | None) -> None:
        """Take notice of a stop, of its place, or that the process runs."""
        before = self._holder.stops.pop(self, None)
        if stop is not None:
            name = PureWindowsPath(stop.file).name  # which knows the separators of all systems
            at = f"{name}:{stop.line}" if name else ""
            since = before.since if before is not None else time.time()
            self._holder.stops[self] = _Stop(at, since)
        self._on_stop()


class Attachments:
    """The clients that hold the targets of an agent.

    Args:
        on_change: Called when a target gets a holder or becomes free, and some time after its process has stopped or
            resumed.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._holders: dict[Target, _Holder] = {}
        self._announcing: asyncio.TimerHandle | None = None
        """Set for `ANNOUNCE_DELAY` after a process has stopped or resumed."""

    def __repr__(self) -> str:
        return f"<Attachments {sorted(target.logical_port for target in self._holders)}>"

    def refusal(self, target: Target, driver: SessionDriver, user: str) -> str:
        """Return why a client must not connect to a target: another one holds it; "" if it may connect.

        The agent cannot distinguish a client that was killed from one that lost its network, and keeps the session of
        both. So if the same user connects with a new client while the old one has no transport, the old session is
        aborted.
        """
        holder = self._holders.get(target)
        if holder is None or holder.driver is driver or not target.dap_only:
            return ""
        if holder.user == user and not holder.driver.session.attached:
            holder.driver.abort("its user reconnected with another client")
            return ""
        return holder.sentence

    @contextlib.asynccontextmanager
    async def holding(self, target: Target, driver: SessionDriver, user: str) -> AsyncIterator[DebugStream]:
        """Hold a target for the duration of a block; the streams of an aborted session are closed first.

        Yields:
            The object to which the stream reports.

        Raises:
            ConnectionLost: another client has taken the target.
        """
        holder = await self._acquire(target, driver, user)
        holder.streams += 1
        stream = DebugStream(holder, self._announce_later)
        try:
            if holder.streams == 1:
                self._on_change()
            yield stream
        finally:
            holder.streams -= 1
            stream.ended()
            if not holder.streams:
                del self._holders[target]
                holder.gone.set()
                target.detached()
                self._on_change()
            else:
                self._announce_later()

    def _announce_later(self) -> None:
        if self._announcing is not None:
            self._announcing.cancel()
        self._announcing = asyncio.get_running_loop().call_later(ANNOUNCE_DELAY, self._on_change)

    async def _acquire(self, target: Target, driver: SessionDriver, user: str) -> _Holder:
        while holder := self._holders.get(target):
            if holder.driver is driver or not target.dap_only:
                return holder
            if not holder.driver.over.is_set():
                raise ConnectionLost(holder.sentence)
            await holder.gone.wait()
        holder = self._holders[target] = _Holder(driver, user)
        return holder

    async def until_ended(self, target: Target) -> None:
        """Wait until the debug sessions of a target have ended and their client has received everything."""
        holder = self._holders.get(target)
        while holder is not None and holder.running:
            holder.changed.clear()
            await holder.changed.wait()
        while holder is not None and holder.driver.session.unacknowledged:  # noqa: ASYNC110 - at the end only
            await asyncio.sleep(ACK_INTERVAL)

    def attachment(self, target: Target) -> Attachment | None:
        """Return the attachment of a debug target; None if the target is free or shared by clients."""
        holder = self._holders.get(target)
        return None if holder is None or not target.dap_only else holder.attachment
