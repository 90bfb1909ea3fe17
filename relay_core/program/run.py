"""Running a program's main coroutine until it completes or a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any

from relay_core.net.descriptors import log_exhaustion, raise_descriptor_limit

__all__ = ["FORCED_EXIT_STATUS", "run_until_stopped"]

FORCED_EXIT_STATUS = 130
"""128 + SIGINT: a second signal arrived while the program was stopping."""


def run_until_stopped(coroutine: Coroutine[Any, Any, Any]) -> int:
    """Run `coroutine` until it completes, or until SIGINT or SIGTERM cancels it.

    A second signal ends the process at once.

    Returns:
        0: The coroutine has completed or was stopped by a signal.

    Raises:
        Exception: Any exception of the coroutine.
    """
    with contextlib.suppress(KeyboardInterrupt):  # on Windows, where event loops have no signal handlers
        asyncio.run(_run(coroutine))
    return 0


async def _run(coroutine: Coroutine[Any, Any, Any]) -> None:
    loop = asyncio.get_running_loop()
    raise_descriptor_limit()
    log_exhaustion(loop)
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
