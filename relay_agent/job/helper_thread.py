"""Threads of this library in the job's process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relay_agent.job.gevent_originals import threading

STACK_SIZE = 8 * 2**20
"""Bytes for the stack of a helper, the usual default: Python compiles a nested expression recursively."""


def start_helper(run: Callable[[], None], name: str) -> None:
    """Start a daemon thread that pydevd does not trace, stop or list; pydevd recognizes it by its attributes."""
    thread: Any = threading.Thread(target=run, name=name, daemon=True)
    thread.pydev_do_not_trace = thread.is_pydev_daemon_thread = True
    size = threading.stack_size()
    if not 0 < size < STACK_SIZE:
        thread.start()
        return
    threading.stack_size(STACK_SIZE)  # the job has chosen less for its own threads
    try:
        thread.start()
    finally:
        threading.stack_size(size)
