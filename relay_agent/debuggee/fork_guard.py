"""Fork handlers that detach a forked child from the debugger of its parent.

A forked child inherits its parent's tracing, but none of the debugger's threads. At the first breakpoint, it would stop
and wait for a debugger that cannot reach it; this is a known cause of hanging data loaders.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from relay_agent.debugpy_internals.table import FORKING
from relay_agent.gevent_originals import threading

__all__ = ["install"]


@functools.cache
def install(*, then: Callable[[], None]) -> None:
    """Register the fork handlers, once per process tree, and `then` as the last of them.

    Children inherit the registration, and with it the cache of this function. If debugpy gives each child its own
    debugger, it starts that debugger later, from a clean state.
    """
    # The first handler is written in C and prevents the debugger from tracing the others. While tracing them, the
    # debugger might wait for a lock that a thread of the parent held.
    os.register_at_fork(after_in_child=functools.partial(sys.settrace, None))
    os.register_at_fork(after_in_child=_forget_debugger)
    os.register_at_fork(after_in_child=then)


def _forget_debugger() -> None:
    """Remove, in a forked child, every reference to the debugger of its parent."""
    threading.settrace(None)
    if sys.version_info >= (3, 12):
        _free_monitoring()
    constants: Any = sys.modules.get("_pydevd_bundle.pydevd_constants")
    if constants is not None and FORKING.is_available():
        with FORKING.guarded():
            constants.GlobalDebuggerHolder.global_dbg = None
    threading.current_thread().additional_info = None  # type: ignore[attr-defined] # where pydevd keeps its state


if sys.version_info >= (3, 12):

    def _free_monitoring() -> None:
        """Unregister pydevd's callbacks and its tool id in `sys.monitoring`."""
        monitoring = sys.monitoring
        for tool in range(6):  # sys.monitoring has the tool ids 0 to 5
            if monitoring.get_tool(tool) == "pydevd":
                monitoring.set_events(tool, 0)
                for name, event in vars(monitoring.events).items():
                    if not name.startswith("_") and event:
                        monitoring.register_callback(tool, event, None)
                monitoring.free_tool_id(tool)
