"""Reaches the main thread of the job's process: has it call a function between two instructions of Python code.

Python executes pending calls (`Py_AddPendingCall`) in the main thread. They need no signal handler, and debuggers use
a different mechanism. Python has room for 32 of them and refuses more, as long as the main thread executes C code.

The interface is in C, so the caller has to keep alive what Python will call; Python would use freed memory. Only
accepted calls are kept here, so that refused ones do not displace those that are still waiting.

What Python calls is a function of its own, `PyObject_IsTrue`, which calls `__bool__`. A function that ctypes makes
would swallow an exception that a signal handler of the job raises meanwhile.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from relay_agent.job.own_settrace import settrace
from relay_agent.job.signal_handlers import is_of_signal

_pending: deque[object] = deque(maxlen=64)
"""The calls that Python has accepted most recently, more than it has room for."""


class _Call:
    """A call that `PyObject_IsTrue` executes; it is false, because 0 means to Python that it has succeeded."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function

    def __bool__(self) -> bool:
        function = self.__dict__.pop("_function")  # what it refers to is not kept any longer
        try:
            function()
        except Exception as error:
            if is_of_signal(error):
                raise
        return False


def add_pending_call(function: Callable[[], object]) -> bool:
    """Have the main thread call a function; return False if Python has no room for it now.

    An exception of a signal handler is raised in the job's code, and any other one is ignored.
    """
    import ctypes  # noqa: PLC0415 - in debug runs only

    call = _Call(function)
    add = ctypes.pythonapi["Py_AddPendingCall"]  # not an attribute, whose argument types others may set
    add.argtypes = (ctypes.c_void_p, ctypes.py_object)
    is_accepted: bool = add(ctypes.cast(ctypes.pythonapi.PyObject_IsTrue, ctypes.c_void_p), call) == 0
    if is_accepted:
        _pending.append(call)
    return is_accepted


def call_in_main_thread(function: Callable[[], None]) -> bool:
    """Have the main thread call a function without being traced; otherwise as `add_pending_call`."""

    def change(trace: Any) -> Any:
        function()
        return trace

    return change_main_trace(change)


def change_main_trace(change: Callable[[Any], Any]) -> bool:
    """Do the same with a function that returns the trace function of the main thread from then on.

    Args:
        change: Called with the present trace function, which is not active meanwhile.
    """

    def call() -> None:
        # Untraced: Python 3.11 enters a traced function again and again as long as another pending call is waiting.
        trace = sys.gettrace()
        settrace(None)
        try:
            trace = change(trace)
        finally:
            if sys.gettrace() is None:
                settrace(trace)

    return add_pending_call(call)
