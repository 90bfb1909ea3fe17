"""Patch that makes pydevd respond to `continue` even if there is nothing to resume or a new stop comes first.

pydevd responds as soon as a thread has resumed. That may never happen: a `continue` can arrive when all threads are
running, for example because the user pressed the key twice, or another thread can reach a breakpoint and stop all
threads again before the first one has resumed. While debugpy's adapter waits for the response, it does not pass on
further requests, so the job can no longer be resumed (microsoft/debugpy#2048).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relay_agent.debuggee.pydevd_patches.child_wait import loaded_pydevds
from relay_agent.debugpy_internals.table import CONTINUING

__all__ = ["install"]


def install() -> None:
    """Patch pydevd in this process and its forked children."""
    if not CONTINUING.is_available():
        return
    for each in {module.ThreadsSuspendedSingleNotification for module in loaded_pydevds()}:
        _patch(each)


def _patch(notification: Any) -> None:
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
