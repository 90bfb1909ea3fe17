"""Patch that makes pydevd wake its stopped threads immediately instead of up to 0.2 seconds later.

A stopped thread waits for its own event, and polls every `pydevd.TIMEOUT_SLOW`. To resume it, pydevd sets the event of
an arbitrary thread (`_update_stepping_info` in pydevd_additional_thread_info_regular.py overwrites its argument in a
loop), so in a process with several threads some steps take 0.2 s longer. In addition, a thread that has executed one of
several queued commands waits again before it reads the next.
"""

from __future__ import annotations

from typing import Any

from relay_agent.debugpy_internals.table import WAKING
from relay_agent.gevent_originals import threading

__all__ = ["install", "is_executing"]

_executing: set[int] = set()
"""Idents of the stopped threads that are executing a command, which may run the job's code."""


def is_executing() -> bool:
    """Return whether the debugger is executing something in a stopped thread."""
    return bool(_executing)


def install() -> None:
    """Patch pydevd in this process and its forked children so that it wakes the thread that should resume."""
    if not WAKING.is_available():
        return
    import pydevd  # noqa: PLC0415 - in debug runs only, as the rest
    from _pydevd_bundle import pydevd_thread_lifecycle as lifecycle  # noqa: PLC0415
    from _pydevd_bundle.pydevd_comm import InternalThreadCommand  # noqa: PLC0415
    from _pydevd_bundle.pydevd_constants import get_global_debugger, get_thread_id  # noqa: PLC0415

    resume, do_it = lifecycle.internal_run_thread, InternalThreadCommand.do_it
    commands_and_event = pydevd.PyDB.get_internal_queue_and_event

    def resume_and_wake(thread: Any, *arguments: Any, **named: Any) -> None:
        """Resume a thread, and wake it."""
        resume(thread, *arguments, **named)
        with WAKING.guarded():
            if debugger := get_global_debugger():
                wake(debugger, get_thread_id(thread))

    def do_it_and_wake(command: Any, debugger: Any, *arguments: Any) -> None:
        """Execute a command in its stopped thread, which then immediately checks for the next command or a resume."""
        thread = threading.get_ident()
        _executing.add(thread)
        try:
            do_it(command, debugger, *arguments)
        finally:
            _executing.discard(thread)
            with WAKING.guarded():
                if command.thread_id != "*":
                    wake(debugger, command.thread_id)

    def wake(debugger: Any, thread_id: str) -> None:
        if not WAKING.is_off:
            _commands, event = commands_and_event(debugger, thread_id)
            event.set()

    lifecycle.internal_run_thread = resume_and_wake
    InternalThreadCommand.do_it = do_it_and_wake
