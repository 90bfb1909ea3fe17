r"""SIGTRAP: `kill -TRAP PID` on the node makes a process of a debug run wait for a debugger, any number of times.

    signal --> the main thread is in the program  --> it waits for a debugger, which stops at the program's next line
          \-> it is already waiting, or stopped   --> nothing to do
          \-> it is in code that may hold a lock  --> the signal is sent again a moment later

Python calls the handler in the main thread, between two instructions of the interrupted code. That code may hold a lock
that waiting needs: a lock in this library or in debugpy, or the lock of a module that is being imported.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

from relay_agent.job.gevent_originals import threading
from relay_agent.stacks.in_process import program_frame, with_callers
from relay_agent.stacks.stopped import stopped_threads

Hold = Callable[[FrameType], None]
"""Waits for a debugger and makes it stop in the frame."""

RETRY_INTERVAL = 0.05
MAX_RETRIES = 100
"""Number of retries before the signal is dropped; any section of code that holds a lock finishes sooner."""
LOCKING = ("relay_agent.", "relay_core.", "_pydevd_bundle.", "_pydev_bundle.", "debugpy.", "importlib._bootstrap")
"""Modules whose code may hold a lock that waiting needs."""


def install(hold: Hold) -> bool:
    """Call `hold` in the main thread at each SIGTRAP, and return whether the handler was installed.

    It is not installed if the job has its own handler, if the caller is not the main thread, or if the system does not
    have this signal.
    """
    number = getattr(signal, "SIGTRAP", None)
    if number is None or threading.current_thread() is not threading.main_thread():
        return False
    if signal.getsignal(number) is not signal.SIG_DFL:
        return False
    signal.signal(number, _Handler(hold))
    return True


class _Handler:
    """The signal handler."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold
        self._retries = 0
        self._is_holding = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if frame is None or self._is_holding or _is_waiting(frame):
            return
        if threading.main_thread().ident in stopped_threads():
            return
        if _may_hold_lock(frame):
            self._retry(number)
            return
        self._retries = 0
        self._is_holding = True
        try:
            self._hold(program_frame(frame))
        finally:
            self._is_holding = False

    def _retry(self, number: int) -> None:
        if self._retries == MAX_RETRIES:
            self._retries = 0
            return
        self._retries += 1
        timer = threading.Timer(RETRY_INTERVAL, self._send_again, (number,))
        timer.daemon = True
        timer.start()

    def _send_again(self, number: int) -> None:
        if signal.getsignal(number) is self:  # otherwise the signal would call the job's handler, or end the job
            os.kill(os.getpid(), number)


def _is_waiting(frame: FrameType) -> bool:
    return any(
        each.f_code.co_name == "wait_for_attach" and _module(each) == "relay_agent.debuggee.debugger"
        for each in with_callers(frame)
    )


def _may_hold_lock(frame: FrameType) -> bool:
    return any(_module(each).startswith(LOCKING) for each in with_callers(frame))


def _module(frame: FrameType) -> str:
    name = frame.f_globals.get("__name__")
    return name if isinstance(name, str) else ""
