"""Reaches the main thread of this process: runs a function in it, or holds it at its next call of certain functions.

Python executes pending calls (`Py_AddPendingCall`) in the main thread between two instructions of Python code. From
there a profile function is set, which Python calls at each call of the main thread, and which is removed at the end of
the push. Neither needs a signal handler, and a debugger uses another mechanism.
"""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from relay_agent.stacks.stopped import stopped_threads
from relay_agent.unpatched import threading, time
from relay_core.agent_api.push import Push, State

__all__ = ["Hold", "call_in_main_thread"]

_FUNCTION = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


def call_in_main_thread(function: Callable[[], None]) -> None:
    """Have the main thread call a function as soon as it executes Python code; the function must not raise."""

    def call(_argument: object) -> int:
        function()
        return 0

    scheduled = _FUNCTION(call)
    _scheduled.append(scheduled)
    ctypes.pythonapi.Py_AddPendingCall(scheduled, None)


_scheduled: deque[Any] = deque(maxlen=32)
"""The last functions that Python calls, or will call; it does not keep them alive."""


class Hold:
    """Holds the main thread when it calls one of some functions, until it is let go or nobody extends the hold.

    Args:
        functions: The names of the functions, by the id of their code.
        until: When to give up, in seconds of `time.monotonic`.
    """

    def __init__(self, functions: Mapping[int, str], until: float) -> None:
        self.frame: FrameType | None = None
        """The frame of the call at which the main thread is held."""
        self.place = ""
        """The name of the function."""
        self.is_over = False
        """True if the main thread is not held any more, and will not be."""
        self.obstacle = ""
        """Why the main thread cannot be held."""
        self._functions = functions
        self._wanted = ""
        self._is_nested = False
        self._until = until
        self._changed = threading.Condition()
        self._is_passing = False
        call_in_main_thread(self._begin)

    def __repr__(self) -> str:
        return f"<Hold {self.place or ('over' if self.is_over else 'waiting')}>"

    def wait(self, request: Push, until: float) -> State:
        """Wait until the main thread is held as a request demands, for a limited time, and return its state.

        Args:
            request: The request.
            until: When to give up the whole hold.
        """
        ends = time.monotonic() + request.seconds
        with self._changed:
            self._wanted, self._is_nested, self._until = request.function, request.nested, until
            self._is_passing = bool(self.place) and (request.again or self._wanted not in {"", self.place})
            self._changed.notify_all()
            while (not self.place or self._is_passing) and not self.is_over and time.monotonic() < ends:
                self._changed.wait(min(0.05, max(0.0, ends - time.monotonic())))
                if threading.main_thread().ident in stopped_threads():
                    return State.STOPPED
            return State.HELD if self.place and not self._is_passing else State.RUNNING

    def end(self, action: Callable[[FrameType | None], None] = lambda _frame: None) -> bool:
        """Do something while the main thread is held, if it is, then let it continue.

        Return False if the time of the hold had passed before.
        """
        with self._changed:
            if self.is_over:
                return False
            try:
                action(self.frame)
            finally:
                self.is_over = True
                self._changed.notify_all()
        return True

    # In the main thread:

    def _begin(self) -> None:
        if self.is_over:
            return
        if sys.getprofile() is not None:
            self.obstacle, self.is_over = "the job has set a profile function", True
            return
        sys.setprofile(self._called)

    def _called(self, frame: FrameType, event: str, _argument: object) -> None:
        if self.is_over or time.monotonic() > self._until:
            self.is_over = True
            sys.setprofile(None)
        elif event == "call" and (name := self._functions.get(id(frame.f_code))) and self._accepts(frame, name):
            self._hold(frame, name)

    def _accepts(self, frame: FrameType, name: str) -> bool:
        return self._wanted in {"", name} and (self._is_nested or not self._is_inside(frame.f_back))

    def _is_inside(self, frame: FrameType | None) -> bool:
        """Return whether one of the functions is executed already: its old code would call new code."""
        while frame is not None:
            if id(frame.f_code) in self._functions:
                return True
            frame = frame.f_back
        return False

    def _hold(self, frame: FrameType, name: str) -> None:
        with self._changed:
            self.frame, self.place = frame, name
            self._changed.notify_all()
            while not (self.is_over or self._is_passing):
                self._changed.wait(0.1)
                if time.monotonic() > self._until:
                    self.is_over = True
            self.frame, self.place, self._is_passing = None, "", False
        if self.is_over:
            sys.setprofile(None)
