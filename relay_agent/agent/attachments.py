"""Table of attachments: which client is connected to which target.

A debug target accepts one client at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import PureWindowsPath
from typing import NamedTuple

from relay_agent.agent.targets import Target
from relay_core.agent_api.announcement import Attachment
from relay_core.errors import ConnectionLost
from relay_core.layers.stop_observer import ObservedStop
from relay_core.net.session.driver import SessionDriver
from relay_core.net.tasks import TaskSet

# Stops of a target's processes, and when the agent announces them.
#
# A step is a short run followed by a stop. So a stop becomes part of the attachment immediately, but the announcement
# that contains it is sent only after the process has stayed stopped, or running, for a moment.

ANNOUNCE_DELAY = 0.5
"""Seconds that a process must stay stopped or running before the change is announced, because each step ends with a
stop.
"""


class _Stop(NamedTuple):
    observed: ObservedStop
    since: float

    @property
    def at(self) -> str:
        """File name and line, or ""."""
        place = self.observed.place
        name = PureWindowsPath(place.file).name if place else ""  # accepts the separators of all systems
        return f"{name}:{place.line}" if place and name else ""


@dataclass
class Stops:
    """Where the processes behind one target are stopped; a process with children has several debug streams."""

    _of_streams: dict[object, _Stop] = field(default_factory=dict)
    """The current stop of each debug stream that has one, oldest first."""
    resumed_since: float | None = None
    """When a process last resumed; None before any has resumed."""

    def set(self, stream: object, stop: ObservedStop | None) -> None:
        """Record where the process of a stream is stopped; None if it is running or its debug session has ended."""
        before = self._of_streams.pop(stream, None)
        if stop is not None:
            self._of_streams[stream] = _Stop(stop, before.since if before else time.time())
        elif before is not None:
            self.resumed_since = time.time()

    @property
    def latest(self) -> _Stop | None:
        """The latest stop."""
        return next(reversed(self._of_streams.values()), None)

    def attachment(self, user: str, since: float) -> Attachment:
        """Return a user's attachment, with the latest stop."""
        stop = self.latest
        if stop is None:
            return Attachment(user, since, is_stopped=False, resumed_since=self.resumed_since)
        return Attachment(
            user, since, is_stopped=True, stopped_at=stop.at, uncaught=stop.observed.uncaught, stopped_since=stop.since
        )


ACK_INTERVAL = 0.01
"""Seconds between checks of whether a client has received everything."""


@dataclass
class _Holder:
    driver: SessionDriver
    user: str
    since: float = field(default_factory=time.time)
    streams: int = 0
    """Number of open streams; the debugger of a process with children has several."""
    running: set[DebugStream] = field(default_factory=set)
    """The streams whose debug session has not ended."""
    stops: Stops = field(default_factory=Stops)
    """Where the process and its children are stopped."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when `running` has changed."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def sentence(self) -> str:
        """The reason for refusing other clients, with user and time."""
        return f"held by {self.user} (since {time.strftime('%H:%M', time.localtime(self.since))})"

    @property
    def attachment(self) -> Attachment:
        """What the agent announces about this holder."""
        attachment = self.stops.attachment(self.user, self.since)
        return replace(attachment, is_away=not self.driver.session.attached)


class DebugStream:
    """What one stream reports about its debug session."""

    def __init__(self, holder: _Holder, on_stop: Callable[[], None]) -> None:
        self._holder = holder
        self._on_stop = on_stop
        holder.running.add(self)

    def ended(self) -> None:
        """Record that the debug session has ended and that its last bytes have been passed to the tunnel session."""
        self._holder.running.discard(self)
        self._holder.stops.set(self, None)
        self._holder.changed.set()

    def stopped(self, stop: ObservedStop | None) -> None:
        """Record where the process has stopped, as far as is known, or that it is running (None)."""
        self._holder.stops.set(self, stop)
        self._on_stop()


class Attachments:
    """The clients that hold the targets of an agent.

    Args:
        on_change: Called when a target gets a holder or becomes free, and some time after its process has stopped or
            resumed.
        tasks: Owns the tasks that ask processes where they are stopped.
    """

    def __init__(self, on_change: Callable[[], None], tasks: TaskSet | None = None) -> None:
        self._on_change = on_change
        self._tasks = tasks if tasks is not None else TaskSet()  # an empty set is false
        self._holders: dict[Target, _Holder] = {}
        self._timer: asyncio.TimerHandle | None = None
        """The timer of the last announcement of stops."""

    def refusal(self, target: Target, driver: SessionDriver, user: str, *, is_release: bool = False) -> str:
        """Return why a client must not connect to a target that another client holds, or "" if it may connect.

        The agent cannot distinguish a client that was killed from one that lost its network, so it keeps the sessions
        of both. Therefore, if the same user connects with a new client while the session of the previous client has no
        transport, the previous session is aborted.
        """
        holder = self._holders.get(target)
        if holder is None or holder.driver is driver or not target.dap_only:
            return ""
        if holder.user == user and not holder.driver.session.attached:
            holder.driver.abort(f"released by {user}" if is_release else "the user reconnected with another client")
            return ""
        return holder.sentence

    def contact_changed(self) -> None:
        """Announce later which clients are connected: replacing a transport takes less time than `ANNOUNCE_DELAY`."""
        if self._holders:
            self._announce_later()

    @contextlib.asynccontextmanager
    async def holding(self, target: Target, driver: SessionDriver, user: str) -> AsyncIterator[DebugStream]:
        """Hold a target for the duration of a block, after waiting for the streams of an aborted session to close.

        Yields:
            The object to which the stream reports the state of its debug session.

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
                target.detached(holder.stops.resumed_since)
                self._on_change()
            else:
                self._announce_later()

    def _announce_later(self) -> None:
        """Announce the stops after `ANNOUNCE_DELAY`, or later if there are more changes in the meantime."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(ANNOUNCE_DELAY, self._announce_stops)

    def _announce_stops(self) -> None:
        """Announce the stops that last, and ask the processes for the places that no editor has requested."""
        self._on_change()
        for target, holder in self._holders.items():
            if target.dap_only and (stop := holder.stops.latest) is not None and stop.observed.place is None:
                self._tasks.spawn(self._find_place(target, stop.observed), name=f"place of the stop of {target}")

    async def _find_place(self, target: Target, stop: ObservedStop) -> None:
        if (place := await target.stopped_at()) is not None:
            stop.found(place)
            self._on_change()

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
