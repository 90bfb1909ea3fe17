"""Threads of this library in the job's process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relay_agent.job.gevent_originals import threading


def start_helper(run: Callable[[], None], name: str) -> None:
    """Start a daemon thread that pydevd does not trace, stop or list; pydevd recognizes it by its attributes."""
    thread: Any = threading.Thread(target=run, name=name, daemon=True)
    thread.pydev_do_not_trace = thread.is_pydev_daemon_thread = True
    thread.start()
