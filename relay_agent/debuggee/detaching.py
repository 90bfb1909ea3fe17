"""Detaches a debugger that cannot be asked: that of a parent in a forked child, and one that no longer responds."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from relay_agent.debuggee import tracing
from relay_agent.debugpy_internals.table import RECOVERY
from relay_agent.job.gevent_originals import socket, threading, time
from relay_core.socket_tables import SocketTables

# Fork handlers that detach a forked child from the debugger of its parent.
#
# A forked child inherits its parent's tracing, but none of the debugger's threads. At the first breakpoint, it would
# stop and wait for a debugger that cannot reach it; this is a known cause of hanging data loaders.
#
# Alternatives: `spawn` instead of `fork` is a decision of the job. To remove tracing before each fork and restore it in
# the parent would leave the parent's running threads without breakpoints for that time.


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
    """Remove, in a forked child, every reference to the debugger of its parent.

    Nothing is imported or logged here: another thread of the parent may have held an import lock, or that of a stream.
    """
    threading.settrace(None)
    _free_monitoring()
    constants: Any = sys.modules.get("_pydevd_bundle.pydevd_constants")
    with contextlib.suppress(AttributeError, KeyError):  # another version of debugpy; the parent has logged that
        constants.GlobalDebuggerHolder.global_dbg = None
        constants.after_fork()
        tracing.restore_output()
    threading.current_thread().additional_info = None  # type: ignore[attr-defined] # where pydevd keeps its state


def _free_monitoring() -> None:
    """Unregister pydevd's callbacks and its tool id in `sys.monitoring`, which Python has since version 3.12."""
    monitoring: Any = getattr(sys, "monitoring", None)
    for tool in range(6) if monitoring is not None else ():  # the tool ids are 0 to 5
        if monitoring.get_tool(tool) == "pydevd":
            monitoring.set_events(tool, 0)
            for name, event in vars(monitoring.events).items():
                if not name.startswith("_") and event:
                    monitoring.register_callback(tool, event, None)
            monitoring.free_tool_id(tool)


# Shuts down a debugger that has stopped responding. The job then continues, and another debugger can attach.

LOCK_TIMEOUT = 1.0
"""Timeout in seconds for acquiring pydevd's lock, which pydevd usually holds for milliseconds."""
END_TIMEOUT = 3.0
"""Timeout in seconds for pydevd to stop its threads, and for their exit; pydevd waits 0.5 s for each of two
conditions."""
POLL_INTERVAL = 0.01


def is_abandoned(port: int) -> bool:
    """Return whether no editor is connected to debugpy's adapter, as far as this system shows connections."""
    try:
        with SocketTables() as tables:
            return not tables.has_client(port)
    except OSError:
        return False


def end_debugger(debugger: Any, *, threads: bool = False) -> bool:
    """Shut down pydevd's debugger, which resumes the job's threads; return whether that was possible.

    Its adapter exits when the connection closes. The next debugger gets a new adapter.

    Args:
        debugger: pydevd's.
        threads: Whether to wait for the exit of its threads as well. pydevd's own wait ends before that.
    """
    if not RECOVERY.is_available():
        return False
    import pydevd  # noqa: PLC0415 - only for a debugger that is no longer responding

    with RECOVERY.guarded():
        running = list(debugger.created_pydb_daemon_threads) if threads else []
        with contextlib.suppress(OSError):  # already closed
            debugger.writer.sock.shutdown(socket.SHUT_RDWR)
        # A hung thread may be holding the lock, which all other threads need in order to resume.
        debugger._main_lock.acquire(timeout=LOCK_TIMEOUT)  # noqa: SLF001
        debugger._main_lock.release()  # noqa: SLF001
        debugger.dispose_and_kill_all_pydevd_threads()
        # If pydevd's reader noticed the closed socket first, then the reader is ending the debugger, and the call above
        # has returned without waiting.
        deadline = time.monotonic() + END_TIMEOUT
        while pydevd.get_global_debugger() is debugger and time.monotonic() < deadline:
            time.sleep(POLL_INTERVAL)
        for thread in running:
            thread.join(max(0.0, deadline - time.monotonic()))
        return True
    return False
