"""Reaches the main thread of this process: runs a function in it, or holds it at its next call to certain functions.

Python executes pending calls (`Py_AddPendingCall`) in the main thread between two instructions of Python code. Such a
call sets a profile function, which Python then calls at each function call in the main thread. It is removed at the end
of the push. Neither needs a signal handler, and debuggers use a different mechanism.
"""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from relay_agent.collectives.sequence_numbers import begun_collectives
from relay_agent.gevent_originals import threading, time
from relay_agent.stacks.stopped import stopped_threads
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
"""The functions that were most recently passed to Python; kept here, because Python does not keep them alive."""


class Hold:
    """Holds the main thread when it calls one of the given functions, until it is released or the hold is not extended.

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
        """True if the main thread was released, or will not be held at all."""
        self.obstacle = ""
        """Why the main thread cannot be held."""
        self.counts: Mapping[str, int] = {}
        """How many collective operations the process had begun at the last call to one of the functions."""
        self.before: Mapping[str, int] = {}
        """The same at the call before that one, or at the beginning of the hold."""
        self._functions = functions
        self._wanted = ""
        self._targets: Mapping[str, int] = {}
        self._is_nested = False
        self._until = until
        self._changed = threading.Condition()
        self._is_passing = False
        call_in_main_thread(self._begin)

    def __repr__(self) -> str:
        return f"<Hold {self.place or ('over' if self.is_over else 'waiting')}>"

    def wait(self, request: Push, until: float) -> State:
        """Wait for a limited time until the main thread is held as a request requires, and return its state.

        Args:
            request: The request.
            until: When to give up the whole hold.
        """
        ends = time.monotonic() + request.seconds
        with self._changed:
            self._wanted, self._is_nested, self._until = request.function, request.nested, until
            self._targets = request.targets
            is_elsewhere = request.again or self._wanted not in {"", self.place} or self._is_behind()
            self._is_passing = bool(self.place) and is_elsewhere
            self._changed.notify_all()
            while (not self.place or self._is_passing) and not self.is_over and time.monotonic() < ends:
                self._changed.wait(min(0.05, max(0.0, ends - time.monotonic())))
                if threading.main_thread().ident in stopped_threads():
                    return State.STOPPED
            return State.HELD if self.place and not self._is_passing else State.RUNNING

    def end(self, action: Callable[[FrameType | None], None] = lambda _frame: None) -> bool:
        """Execute an action while the main thread is held, if it is held, and then let it continue.

        Return False if the hold had already timed out.
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
        self.counts = begun_collectives()
        sys.setprofile(self._called)

    def _called(self, frame: FrameType, event: str, _argument: object) -> None:
        if self.is_over or time.monotonic() > self._until:
            self.is_over = True
            sys.setprofile(None)
        elif event == "call" and (name := self._functions.get(id(frame.f_code))) and self._accepts(frame, name):
            self.before, self.counts = self.counts, begun_collectives()
            if not self._is_behind():
                self._hold(frame, name)

    def _is_behind(self) -> bool:
        return any(number < self._targets.get(name, 0) for name, number in self.counts.items())

    def _accepts(self, frame: FrameType, name: str) -> bool:
        return self._wanted in {"", name} and (self._is_nested or not self._is_inside(frame.f_back))

    def _is_inside(self, frame: FrameType | None) -> bool:
        """Return whether one of the functions is already being executed: its old code would call new code."""
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
