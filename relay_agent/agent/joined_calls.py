"""Joins calls that follow each other quickly into one, for work whose cost depends on the number of targets.

All ranks of a node often change together. Each announcement contains all of them, so one announcement for each change
would cost the square of their number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

INTERVAL = 0.05
"""Minimum time in seconds between the end of one call and the next one; too short for users to notice."""


class JoinedCalls:
    """Calls a function for requests: at once for the first one, and at most once per `INTERVAL` for those that follow.

    Args:
        call: The function. It is called after the last request in any case.
    """

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._not_before = 0.0
        """The earliest time of the next call, by the event loop's clock."""
        self._timer: asyncio.TimerHandle | None = None
        self._called = asyncio.Event()
        """Set by the call for which `_timer` is waiting."""

    def request(self) -> None:
        """Call the function now, or when the interval since its last call has passed."""
        if self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= self._not_before:
            self._call_now()
        else:
            self._called = asyncio.Event()
            self._timer = loop.call_at(self._not_before, self._call_now)

    def flush(self) -> None:
        """Call the function now if a call is pending."""
        if self._timer is not None:
            self._call_now()

    async def until_called(self) -> None:
        """Wait until the pending call, if there is one, has been made."""
        if self._timer is not None:
            await self._called.wait()

    def _call_now(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = asyncio.get_running_loop().time
        self._not_before = now() + INTERVAL  # for a request that the call itself makes
        try:
            self._call()
        finally:
            self._not_before = now() + INTERVAL
            self._called.set()
