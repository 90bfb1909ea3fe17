"""Forked children of a debugged process: they run free of its debugger.

A forked child inherits the tracing of its parent, and none of the threads that a debugger consists of. At the first
breakpoint it would stop for a debugger that cannot hear it: the folklore of data loaders that hang.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable

__all__ = ["install"]


@functools.cache
def install(*, then: Callable[[], None]) -> None:
    """Guard the children that this process will fork, once, and call `then` in each of them.

    What is registered stays registered in the children, which inherit the cache of this function as well. Where debugpy
    gives each child a debugger of its own, its preparations come later and start from nothing.
    """
    # First in C, so that the debugger sees nothing of the rest: it may wait for a lock that a thread of the parent had.
    os.register_at_fork(after_in_child=functools.partial(sys.settrace, None))
    os.register_at_fork(after_in_child=_forget_debugger)
    os.register_at_fork(after_in_child=then)


def _forget_debugger() -> None:
    """End, in a forked child, all that leads to the debugger of its parent."""
    threading.settrace(None)
    if sys.version_info >= (3, 12):
        _free_monitoring()
    constants = sys.modules.get("_pydevd_bundle.pydevd_constants")
    with contextlib.suppress(AttributeError):  # pydevd's inside may change; the child is untraced all the same
        constants.GlobalDebuggerHolder.global_dbg = None  # type: ignore[union-attr] # None has no attributes
    threading.current_thread().additional_info = None  # type: ignore[attr-defined] # where pydevd keeps its state


if sys.version_info >= (3, 12):

    def _free_monitoring() -> None:
        """Give pydevd's place in `sys.monitoring` back, without the events it still waits for."""
        monitoring = sys.monitoring
        for tool in range(6):  # all there are
            if monitoring.get_tool(tool) == "pydevd":
                monitoring.set_events(tool, 0)
                for name, event in vars(monitoring.events).items():
                    if not name.startswith("_") and event:
                        monitoring.register_callback(tool, event, None)
                monitoring.free_tool_id(tool)
