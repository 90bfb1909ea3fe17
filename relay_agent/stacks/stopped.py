"""The threads of this process that a debugger has stopped."""

from __future__ import annotations

import sys

from relay_agent.debugpy_internals.table import THREAD_STATE
from relay_agent.gevent_originals import threading

__all__ = ["stopped_threads"]


def stopped_threads() -> set[int]:
    """Return the idents of the threads that a debugger has stopped."""
    if "_pydevd_bundle.pydevd_constants" not in sys.modules or not THREAD_STATE.is_available():
        return set()
    from _pydevd_bundle.pydevd_constants import STATE_SUSPEND  # noqa: PLC0415 - in debug runs only

    found: set[int] = set()
    with THREAD_STATE.guarded():
        for thread in threading.enumerate():
            info = getattr(thread, "additional_info", None)
            if info is not None and info.pydev_state == STATE_SUSPEND and thread.ident is not None:
                found.add(thread.ident)
    return found
