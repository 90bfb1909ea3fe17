"""Running a program's main coroutine until it completes or a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from relay_core.exit_codes import INTERRUPTED
from relay_core.program import event_loop
from relay_core.program.descriptors import log_exhaustion, raise_descriptor_limit

__all__ = ["run_until_stopped"]

FORCED_EXIT_AFTER = 1.0
"""Seconds between the second signal and the end of the process: time to remove files and to restore the terminal."""

logger = logging.getLogger(__name__)


def run_until_stopped(coroutine: Coroutine[Any, Any, Any], *, closing: str = "") -> int:
    """Run `coroutine` until it completes, or until SIGINT or SIGTERM cancels it.

    A second signal ends the process within `FORCED_EXIT_AFTER`, even if the coroutine or a thread does not end.

    Args:
        coroutine: The program.
        closing: What the coroutine does when it is cancelled, for the log; "" for a program that ends immediately.

    Returns:
        0: The coroutine has completed or was stopped by a signal.
        130: A second signal has stopped it.

    Raises:
        Exception: Any exception of the coroutine.
    """
    status = 0

    def force() -> None:
        nonlocal status
        status = INTERRUPTED
        # Closing an event loop waits for all tasks and for the threads of its executor, however long that takes.
        timer = threading.Timer(FORCED_EXIT_AFTER, os._exit, [INTERRUPTED])
        timer.daemon = True
        timer.start()

    with contextlib.suppress(KeyboardInterrupt):  # on Windows, where event loops have no signal handlers
        event_loop.run(_run(coroutine, closing, force))
    return status


async def _run(coroutine: Coroutine[Any, Any, Any], closing: str, force: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    raise_descriptor_limit()
    log_exhaustion(loop)
    task = loop.create_task(coroutine, name="main")
    stopped = False

    def stop() -> None:
        nonlocal stopped
        if stopped:
            force()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.raise_signal(signal.SIGINT)
        stopped = True
        if closing:
            logger.info("stopping: %s; a second Ctrl-C exits immediately", closing)
        task.cancel()

    with contextlib.suppress(NotImplementedError):  # Windows
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not stopped:
            raise
