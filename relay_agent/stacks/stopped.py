"""The threads of this process that a debugger has stopped."""

from __future__ import annotations

import sys

from relay_agent.debugpy_internals.table import THREAD_STATE
from relay_agent.job.gevent_originals import threading


def stopped_threads() -> dict[int, bool]:
    """Return the idents of the threads that a debugger has stopped, and whether each has stopped on its own.

    A thread stops on its own at a breakpoint, at an exception and after a step. The others are stopped along with it; a
    `pause` stops all threads in this way.
    """
    if "_pydevd_bundle.pydevd_constants" not in sys.modules or not THREAD_STATE.is_available():
        return {}
    from _pydevd_bundle.pydevd_comm_constants import CMD_THREAD_SUSPEND  # noqa: PLC0415 - in debug runs only
    from _pydevd_bundle.pydevd_constants import STATE_SUSPEND  # noqa: PLC0415 - as above

    found: dict[int, bool] = {}
    with THREAD_STATE.guarded():
        for thread in threading.enumerate():
            info = getattr(thread, "additional_info", None)
            if info is not None and info.pydev_state == STATE_SUSPEND and thread.ident is not None:
                found[thread.ident] = getattr(thread, "stop_reason", CMD_THREAD_SUSPEND) != CMD_THREAD_SUSPEND
    return found
