"""Runs a program's main coroutine until it is done or somebody asks it to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any

__all__ = ["FORCED_EXIT_STATUS", "run_until_stopped"]

FORCED_EXIT_STATUS = 130
"""128 + SIGINT: a second request to stop came before the first was carried out."""


def run_until_stopped(coroutine: Coroutine[Any, Any, Any]) -> int:
    """Run `coroutine`; SIGINT or SIGTERM cancels it, and it may clean up; a second one ends the process at once.

    Returns:
        0: the coroutine is done, or was stopped on request.

    Raises:
        Whatever the coroutine raises.
    """
    with contextlib.suppress(KeyboardInterrupt):  # how Ctrl-C arrives where loops have no signal handlers (Windows)
        asyncio.run(_run(coroutine))
    return 0


async def _run(coroutine: Coroutine[Any, Any, Any]) -> None:
    loop = asyncio.get_running_loop()
    task = loop.create_task(coroutine, name="main")
    stopped = False

    def stop() -> None:
        nonlocal stopped
        if stopped:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.raise_signal(signal.SIGINT)
        stopped = True
        task.cancel()

    with contextlib.suppress(NotImplementedError):  # Windows
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not stopped:
            raise
