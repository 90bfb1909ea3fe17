"""Ends a debugger that no longer responds, so that the job continues and can be debugged again."""

from __future__ import annotations

import contextlib
from typing import Any

from relay_agent.debugpy_internals.table import RECOVERY
from relay_agent.unpatched import time
from relay_core.socket_tables import OwnerUnknown, SocketTables

__all__ = ["end_debugger", "is_abandoned"]

LOCK_TIMEOUT = 1.0
"""Timeout in seconds; pydevd usually holds its lock for milliseconds."""
END_TIMEOUT = 3.0
"""Seconds for pydevd to end its threads; it waits 0.5 s for each of two conditions."""
POLL_INTERVAL = 0.01


def is_abandoned(port: int) -> bool:
    """Return whether no editor is connected to debugpy's adapter, as far as this system shows it."""
    try:
        return not SocketTables().has_client(port)
    except OwnerUnknown:
        return False


def end_debugger(debugger: Any) -> bool:
    """End pydevd's debugger, which resumes the job's threads; return whether that was possible.

    Its adapter exits when the connection closes. The next debugger gets a new adapter.
    """
    if not RECOVERY.is_available():
        return False
    import socket  # noqa: PLC0415 - with a debugger that no longer responds only, as the next one

    import pydevd  # noqa: PLC0415

    with RECOVERY.guarded():
        with contextlib.suppress(OSError):  # it is closed
            debugger.writer.sock.shutdown(socket.SHUT_RDWR)
        # A hanging thread may hold the lock, which all other threads need in order to resume.
        debugger._main_lock.acquire(timeout=LOCK_TIMEOUT)  # noqa: SLF001
        debugger._main_lock.release()  # noqa: SLF001
        debugger.dispose_and_kill_all_pydevd_threads()
        # If pydevd's reader noticed the closed socket first, it is ending the debugger, and the call has not waited.
        deadline = time.monotonic() + END_TIMEOUT
        while pydevd.get_global_debugger() is debugger and time.monotonic() < deadline:
            time.sleep(POLL_INTERVAL)
        return True
    return False
