"""Distinguishes what a signal handler of the job has raised, such as a time limit, from other exceptions.

A handler can be called between any two instructions of the main thread, and what it raises is meant for the job. So
code that relay-debug executes in the job's threads must not catch it, as it catches what a value's `repr` raises.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # `signal.getsignal` calls methods of a handler
import functools
import inspect
from types import FunctionType, MethodType
from typing import Any

_traceback_of = vars(BaseException)["__traceback__"].__get__


def is_of_signal(error: BaseException) -> bool:
    """Return whether an exception was raised by a signal handler of the job; executes no code of the exception."""
    if issubclass(type(error), KeyboardInterrupt):
        return True
    # By identity, because to compare code compares its constants.
    handlers = {id(_code_of(_signal.getsignal(number))) for number in _signal.valid_signals()} - {id(None)}
    traceback = _traceback_of(error)
    while handlers and traceback is not None:
        if id(traceback.tb_frame.f_code) in handlers:
            return True
        traceback = traceback.tb_next
    return False


def _code_of(handler: Any) -> Any:
    """Return the code of a signal handler, which may be a partial function or an object with `__call__`."""
    while issubclass(type(handler), functools.partial):
        handler = functools.partial.func.__get__(handler)
    if type(handler) is MethodType:
        handler = handler.__func__
    if type(handler) is not FunctionType:
        handler = inspect.getattr_static(type(handler), "__call__", None)  # executes no code of the object
    return handler.__code__ if type(handler) is FunctionType else None
