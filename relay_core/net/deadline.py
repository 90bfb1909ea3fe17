"""Timer for the deadlines of a sans-IO machine, which move with almost every event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["DeadlineTimer"]


class DeadlineTimer:
    """Calls a function at the earliest deadline that was set.

    When a deadline moves to a later time, the timer is kept. It then fires early, when the machine has nothing to do
    but set the next deadline. That is cheaper than cancelling and creating a timer for each frame.

    Args:
        callback: Called in the event loop; the timer is not set while it runs.
    """

    def __init__(self, callback: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None
        self._due = 0.0
        """When the timer fires. Stored here, because uvloop's timer handle cannot report the time after the timer has
        fired.
        """

    def __repr__(self) -> str:
        return f"<DeadlineTimer {'not set' if self._handle is None else f'at {self._due:.3f}'}>"

    def set(self, deadline: float | None) -> None:
        """Call the function at `deadline` (of the loop's clock) or earlier; None changes nothing."""
        if deadline is None:
            return
        if self._handle is not None:
            if self._due <= deadline:
                return
            self._handle.cancel()
        self._due = deadline
        self._handle = self._loop.call_at(deadline, self._fire)

    def cancel(self) -> None:
        """Cancel the deadline."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        self._callback()
