"""Patch that limits how long a child of a debugged process waits for its own debug session.

debugpy announces such a child to the debugger of its parent, and the child does not run until an editor has attached to
it. If the editor disconnected before that or ignored the announcement, the child would wait without limit. With this
patch, it waits for a limited time, and only while an editor is connected to debugpy's adapter. An editor can still
attach to it later.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from relay_agent.debugpy_internals.table import CHILD_WAIT
from relay_agent.gevent_originals import time
from relay_agent.stderr import write_line
from relay_core.socket_tables import SocketTables

__all__ = ["PORT_VARIABLE", "install", "loaded_pydevds"]

PORT_VARIABLE = "RELAY_DEBUG_ADAPTER_PORT"
"""Set for children: the port of debugpy's adapter for editors; not set if the job itself has connected to an editor."""

LIMIT_VARIABLE = "DEBUGPY_PROCESS_SPAWN_TIMEOUT"
"""debugpy's variable for the time to wait for a process."""
LIMIT = 60.0
"""debugpy's default for this time, in seconds."""
POLL_INTERVAL = 0.02
"""Seconds between two checks for the editor's breakpoints, as in pydevd."""
CONNECTION_INTERVAL = 0.5
"""Seconds between two checks of whether an editor is connected."""
MISSES = 4
"""Number of consecutive checks that must find no editor before the child runs: an editor may close one connection
before it opens the next."""


def install() -> None:
    """Patch `PyDB.wait_for_ready_to_run` in this process and its forked children."""
    if not CHILD_WAIT.is_available():
        return
    for each in {module.PyDB for module in loaded_pydevds()}:
        each.wait_for_ready_to_run = functools.partialmethod(_wait_or, each.wait_for_ready_to_run)


def loaded_pydevds() -> list[Any]:
    """Return the `pydevd` module, and `__main__` too if this process runs pydevd's file as its program."""
    import pydevd  # noqa: PLC0415 - in debug runs only

    return [module for module in (pydevd, sys.modules.get("__main__")) if hasattr(module, "PyDB")]


def _wait_or(debugger: Any, wait: Callable[[Any], None]) -> None:
    """Wait with a time limit; if that fails, wait as pydevd does."""
    with CHILD_WAIT.guarded():
        _wait(debugger)
        return
    wait(debugger)


def _wait(debugger: Any) -> None:
    """Wait until the editor has sent its breakpoints, the adapter has disconnected, or no editor is expected."""
    limit = float(os.environ.get(LIMIT_VARIABLE) or LIMIT)
    deadline = time.monotonic() + limit
    editors = _Editors(int(os.environ.get(PORT_VARIABLE) or 0))
    while not debugger.ready_to_run and not debugger.pydb_disposed:
        reason = f"no debugger attached within {limit:g} s" if time.monotonic() >= deadline else ""
        reason = reason or (
            "the debugger disconnected before it attached to this process" if editors.have_left() else ""
        )
        if reason:
            write_line(f"process {os.getpid()}: {reason}; continuing")
            break
        debugger.process_internal_commands()
        time.sleep(POLL_INTERVAL)
    debugger.ready_to_run = True


class _Editors:
    """The editors that are connected to a port of debugpy's adapter; the port is 0 if it is unknown."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._next_check = 0.0
        self._misses = 0

    def have_left(self) -> bool:
        """Return whether no editor has been connected for a while, as far as this system shows connections."""
        if self._port and time.monotonic() >= self._next_check:
            self._next_check = time.monotonic() + CONNECTION_INTERVAL
            self._misses = 0 if self._is_connected() else self._misses + 1
        return self._misses >= MISSES

    def _is_connected(self) -> bool:
        try:
            with SocketTables() as tables:
                return tables.has_connection(self._port)
        except OSError:
            return True
