"""Patches for stopped threads: how they are woken, how they continue, and what only they can read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relay_agent.debuggee import tracing
from relay_agent.debugpy_internals.table import CONTINUING, INTERRUPTED, WAKING
from relay_agent.job.gevent_originals import threading

# Patch that makes pydevd wake its stopped threads immediately instead of up to 0.2 seconds later.
#
# A stopped thread waits for its own event, and polls every `pydevd.TIMEOUT_SLOW`. To resume it, pydevd sets the event
# of an arbitrary thread (`_update_stepping_info` in pydevd_additional_thread_info_regular.py overwrites its argument in
# a loop), so in a process with several threads some steps take 0.2 s longer. In addition, a thread that has executed
# one of several queued commands waits again before it reads the next.

executing: set[int] = set()
"""Idents of the stopped threads that are executing a command, which may run the job's code."""


def install_waking() -> None:
    """Patch pydevd in this process and its forked children so that it wakes the thread that should resume."""
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
        executing.add(thread)
        try:
            do_it(command, debugger, *arguments)
        finally:
            executing.discard(thread)
            with WAKING.guarded():
                if command.thread_id != "*":
                    wake(debugger, command.thread_id)

    def wake(debugger: Any, thread_id: str) -> None:
        if not WAKING.is_off:
            _commands, event = commands_and_event(debugger, thread_id)
            event.set()

    lifecycle.internal_run_thread = resume_and_wake
    InternalThreadCommand.do_it = do_it_and_wake


# Patch that makes pydevd respond to `continue` even if there is nothing to resume or a new stop comes first.
#
# pydevd responds as soon as a thread has resumed. That may never happen: a `continue` can arrive when all threads are
# running, for example because the user pressed the key twice, or another thread can reach a breakpoint and stop all
# threads again before the first one has resumed. While debugpy's adapter waits for the response, it does not pass on
# further requests, so the job can no longer be resumed (microsoft/debugpy#2048).


def patch_continue(notification: Any) -> None:
    """Patch a class so that pydevd responds to each `continue`."""
    add, send_stopped = notification.add_on_resumed_callback, notification.send_suspend_notification

    def add_or_call(state: Any, callback: Callable[[], None]) -> None:
        """Call back when the stopped threads have resumed, or now if pydevd has reported that already."""
        has_resumed = None
        if not CONTINUING.is_off:
            with CONTINUING.guarded(), state._lock:  # noqa: SLF001 - pydevd holds it when it calls back
                has_resumed = state._last_resume_notification_time >= state._last_suspend_notification_time  # noqa: SLF001
                if not has_resumed:
                    add(state, callback)
        if has_resumed:
            callback()
        elif has_resumed is None:
            add(state, callback)

    def call_and_send_stopped(state: Any, *arguments: Any) -> None:
        """Respond to the pending resume requests, and report the new stop; the caller holds `state._lock`."""
        if not CONTINUING.is_off:
            with CONTINUING.guarded():
                with state._callbacks_lock:  # noqa: SLF001
                    callbacks, state._callbacks = state._callbacks, []  # noqa: SLF001
                for callback in callbacks:
                    callback()
        send_stopped(state, *arguments)

    notification.add_on_resumed_callback = add_or_call
    notification.send_suspend_notification = call_and_send_stopped


# Patch that lets a job continue if one of its signal handlers raises an exception while the job is stopped.
#
# Python calls the handler in the stopped main thread, and the exception leaves pydevd's wait and its trace function,
# into the job's code, as it would without a debugger. pydevd reports that the job continues, but keeps all threads
# marked as stopped; and up to Python 3.11, Python removes a trace function that raises. The main thread would then
# never stop again, although `continue` and `pause` are answered.


def patch_interrupted(debugger_class: Any) -> None:
    """Patch a class so that an exception of a signal handler ends the stop of all threads."""
    from _pydevd_bundle import pydevd_thread_lifecycle as lifecycle  # noqa: PLC0415 - in debug runs only

    wait = debugger_class.do_wait_suspend

    def wait_or_resume(debugger: Any, *arguments: Any, **named: Any) -> None:
        """Wait while the thread is stopped; resume all threads if an exception ends the wait."""
        try:
            wait(debugger, *arguments, **named)
        except BaseException:
            if not INTERRUPTED.is_off:
                with INTERRUPTED.guarded():
                    lifecycle.resume_threads("*")
                    tracing.retrace_main_thread()
            raise

    debugger_class.do_wait_suspend = wait_or_resume


# Patch that keeps torch's state of a stopped thread, which only the thread itself can read.
#
# `relay-client eval` evaluates expressions in a helper thread, with the state of the stopped thread.


def patch_torch_states(debugger_class: Any) -> None:
    """Patch a class so that torch's state of a stopped thread is kept."""
    from relay_agent.values.torch_state import remembered_while_stopped  # noqa: PLC0415 - in debug runs only

    wait = debugger_class.do_wait_suspend

    def wait_with_state(debugger: Any, *arguments: Any, **named: Any) -> None:
        """Keep the state of this thread, in which pydevd waits until the thread continues."""
        with remembered_while_stopped():
            wait(debugger, *arguments, **named)

    debugger_class.do_wait_suspend = wait_with_state
