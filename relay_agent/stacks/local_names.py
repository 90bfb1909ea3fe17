"""The local names of frames, read in such a way that the job notices as little of it as possible.

Before Python 3.13, a function's frame has one dict of its local names. Reading the names fills it, and it keeps the
values, such as the tensors of an earlier step, until the function returns or the names are read again. It is also the
result of `locals()`, which the job may have kept. `local_names` empties it again, which only the thread that executes
the frame can do; `copied_names`, for the frames of other threads, leaves it filled. `keeper_of` finds the code that
would notice either.
"""

from __future__ import annotations

import dis
import inspect
import sys
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

from relay_agent.job.signal_handlers import is_of_signal

OWN_REFERENCES = 3
"""References to the dict of local names if only the frame and `local_names` have it."""
_KEEPERS = frozenset(["locals", "vars"])


def copied_names(frame: FrameType) -> dict[str, Any]:
    """Return a copy of the local names of a frame, which may be that of another thread."""
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # a module or class, without code of its own type of namespace
        names = frame.f_locals
        entries = list(dict.items(names)) if issubclass(type(names), dict) else []
        return {name: value for name, value in entries if type(name) is str}
    try:
        return dict(frame.f_locals)
    except (KeyError, RuntimeError) as error:  # another thread deletes a variable meanwhile
        if is_of_signal(error):
            raise
        return {}


def local_names(frame: FrameType) -> dict[str, Any]:
    """Return a copy of the local names of a frame that this thread executes.

    The values are removed from the frame's dict again, unless somebody else has it. This must not be done to a frame
    for which a trace or profile function is being called: Python would delete the variables when it returns.
    """
    copy = copied_names(frame)
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED and frame.f_trace is None:
        names, code = frame.f_locals, frame.f_code
        if sys.getrefcount(names) <= OWN_REFERENCES:
            for name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):  # others were set by `exec`
                names.pop(name, None)
    return copy


def keeper_of(code: CodeType) -> str:
    """Return the function that code calls and whose result would change if the local names were read; "" if none."""
    if sys.version_info >= (3, 13) or not code.co_flags & inspect.CO_OPTIMIZED or _KEEPERS.isdisjoint(code.co_names):
        return ""
    steps = [*dis.get_instructions(code)]
    loads = [(each.argval, after) for each, after in pairwise(steps) if each.opname == "LOAD_GLOBAL"]  # no attribute
    own = (name for name, after in loads if name == "locals" or (name == "vars" and _has_no_arguments(after)))
    return min(own, default="")


def _has_no_arguments(step: dis.Instruction) -> bool:
    """Return whether the function that was just loaded is called without arguments."""
    return step.opname in {"CALL_FUNCTION", "PRECALL", "CALL"} and step.arg == 0
