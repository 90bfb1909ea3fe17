"""Shuts down a debugger that has stopped responding. The job then continues, and another debugger can attach."""

from __future__ import annotations

import contextlib
from typing import Any

from relay_agent.debugpy_internals.table import RECOVERY
from relay_agent.gevent_originals import time
from relay_core.socket_tables import SocketTables

__all__ = ["end_debugger", "is_abandoned"]

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
    import socket  # noqa: PLC0415 - only for a debugger that is no longer responding, as below

    import pydevd  # noqa: PLC0415

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
