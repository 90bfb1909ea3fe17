"""How pydevd wakes the threads that it has stopped: when they may run on, not up to 0.2 seconds later.

A stopped thread waits for an event of its own and looks every `pydevd.TIMEOUT_SLOW` in any case. Who tells it to run on
sets the event of some thread of the process (`_update_stepping_info` in pydevd_additional_thread_info_regular.py loses
its argument in a loop), so a step in a process with several threads takes 0.2 s more, or does not, as chance has it.
And a thread that has carried out one of several commands waits before it looks for the next.
"""

from __future__ import annotations

from typing import Any

__all__ = ["install"]


def install() -> None:
    """Have this process's pydevd wake whom it means, and that of its forked children."""
    try:
        import pydevd  # noqa: PLC0415 - in debug runs only, as the rest
        from _pydevd_bundle import pydevd_thread_lifecycle as lifecycle  # noqa: PLC0415
        from _pydevd_bundle.pydevd_comm import InternalThreadCommand  # noqa: PLC0415
        from _pydevd_bundle.pydevd_constants import get_global_debugger, get_thread_id  # noqa: PLC0415

        run_on, do_it = lifecycle.internal_run_thread, InternalThreadCommand.do_it
        commands_and_event = pydevd.PyDB.get_internal_queue_and_event
    except (ImportError, AttributeError):  # pydevd's inside may change; then it wakes as ever
        return

    def run_on_now(thread: Any, *arguments: Any, **named: Any) -> None:
        """Let a thread run on."""
        run_on(thread, *arguments, **named)
        if debugger := get_global_debugger():
            wake(debugger, get_thread_id(thread))

    def do_it_and_look(command: Any, debugger: Any) -> None:
        """Carry out what a stopped thread was told; then it looks at once whether it may run on or is told more."""
        try:
            do_it(command, debugger)
        finally:
            if command.thread_id != "*":
                wake(debugger, command.thread_id)

    def wake(debugger: Any, thread_id: str) -> None:
        _commands, event = commands_and_event(debugger, thread_id)
        event.set()

    lifecycle.internal_run_thread = run_on_now
    InternalThreadCommand.do_it = do_it_and_look
