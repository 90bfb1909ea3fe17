"""Detection of system sleep: the wall clock advances during sleep and the monotonic clock does not (Linux, macOS)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["TICK", "watch_clock"]

TICK = 1.0
"""Seconds between comparisons of the clocks."""
JUMP = 5.0
"""Difference in seconds between the clocks in one tick that counts as sleep; NTP steps are usually smaller."""


async def watch_clock(on_tick: Callable[[bool], None], *, wall: Callable[[], float] = time.time) -> None:
    """Call `on_tick(woke_up)` every second until cancelled.

    Args:
        on_tick: `woke_up` is True in the first tick after a sleep.
        wall: Returns Unix seconds.
    """
    loop = asyncio.get_running_loop()
    while True:
        before_wall, before = wall(), loop.time()
        await asyncio.sleep(TICK)
        on_tick((wall() - before_wall) - (loop.time() - before) > JUMP)
