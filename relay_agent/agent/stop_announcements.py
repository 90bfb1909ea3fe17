"""Stops of a target's processes, and when the agent announces them.

A step is a short run followed by a stop. So a stop becomes part of the attachment immediately, but the announcement
that contains it is sent only after the process has stayed stopped, or running, for a moment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PureWindowsPath
from typing import NamedTuple

from relay_core.agent_api.announcement import Attachment
from relay_core.layers.stop_observer import ObservedStop

__all__ = ["StopAnnouncer", "Stops"]

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

    def attachment(self, user: str, since: float) -> Attachment:
        """Return a user's attachment, with the latest stop."""
        stop = next(reversed(self._of_streams.values()), None)
        if stop is None:
            return Attachment(user, since, is_stopped=False, resumed_since=self.resumed_since)
        return Attachment(
            user,
            since,
            is_stopped=True,
            stopped_at=stop.at,
            uncaught=stop.observed.uncaught,
            stopped_since=stop.since,
        )


class StopAnnouncer:
    """Announces that processes have stopped or resumed, once for each quick sequence of changes, after its last change.

    Args:
        announce: Sends the announcement.
    """

    def __init__(self, announce: Callable[[], None]) -> None:
        self._announce = announce
        self._announce_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        """The timer of the pending announcement, if any; if the announcement has been postponed, the timer is started
        again when it fires."""

    def announce_later(self) -> None:
        """Announce after `ANNOUNCE_DELAY`, or later if this is called again in the meantime."""
        loop = asyncio.get_running_loop()
        self._announce_at = loop.time() + ANNOUNCE_DELAY
        if self._timer is None:
            self._timer = loop.call_at(self._announce_at, self._timer_fired, loop)

    def _timer_fired(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if loop.time() >= self._announce_at:
            self._announce()
        else:  # postponed by a later change; cheaper than starting a timer at each step
            self._timer = loop.call_at(self._announce_at, self._timer_fired, loop)
