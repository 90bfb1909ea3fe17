"""Notices that the machine slept: the wall clock went on and the monotonic one did not (Linux, macOS)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["TICK", "watch_clock"]

TICK = 1.0
"""Seconds between looks."""
JUMP = 5.0
"""Seconds the clocks may drift apart in one tick before it is called sleep (NTP steps are smaller as a rule)."""


async def watch_clock(on_tick: Callable[[bool], None], *, wall: Callable[[], float] = time.time) -> None:
    """Call `on_tick(woke_up)` every second, for ever.

    Args:
        on_tick: Gets True for the first tick after a sleep.
        wall: Unix seconds.
    """
    loop = asyncio.get_running_loop()
    while True:
        before_wall, before = wall(), loop.time()
        await asyncio.sleep(TICK)
        on_tick((wall() - before_wall) - (loop.time() - before) > JUMP)
