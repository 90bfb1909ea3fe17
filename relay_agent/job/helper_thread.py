"""Threads of the job's process: starts those of this library, and reaches the main thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from relay_agent.job.gevent_originals import threading


def start_helper(run: Callable[[], None], name: str) -> None:
    """Start a daemon thread that pydevd does not trace, stop or list; pydevd recognizes it by its attributes."""
    thread: Any = threading.Thread(target=run, name=name, daemon=True)
    thread.pydev_do_not_trace = thread.is_pydev_daemon_thread = True
    thread.start()


def add_pending_call(function: Callable[[], object]) -> None:
    """Have the main thread call a function between two instructions of Python code; the function must not raise."""
    import ctypes  # noqa: PLC0415 - in debug runs only

    def call(_argument: object) -> int:
        function()
        return 0

    pending = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(call)
    _pending.append(pending)
    ctypes.pythonapi.Py_AddPendingCall(pending, None)


_pending: deque[object] = deque(maxlen=64)
"""The functions that were most recently passed to Python; kept here, because Python does not keep them alive."""
