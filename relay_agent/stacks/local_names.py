"""The local names of frames, read in such a way that the job does not notice it.

Before Python 3.13, a function's frame has one dict of its local names. Reading the names fills it, and it keeps the
values, such as the tensors of an earlier step, until the function returns or the names are read again. It is also the
result of `locals()`, which the job may have kept.
"""

from __future__ import annotations

import dis
import inspect
import sys
from types import CodeType, FrameType
from typing import Any

from relay_agent.job.signal_handlers import is_of_signal

OWN_REFERENCES = 3
"""References to the dict of local names if only the frame and `local_names` have it."""
_KEEPERS = frozenset(["locals", "vars"])


def namespace_of(frame: FrameType) -> dict[str, Any]:
    """Return a copy of the names of a module or class, without code of the job's own type of namespace."""
    names = frame.f_locals
    return dict(dict.items(names)) if issubclass(type(names), dict) else {}


def local_names(frame: FrameType) -> dict[str, Any]:
    """Return a copy of the local names of a frame.

    The values are removed from the frame's dict again, unless somebody else has it.
    """
    code = frame.f_code
    if not code.co_flags & inspect.CO_OPTIMIZED:  # a module or class, whose own names these are
        return namespace_of(frame)
    names, copy = frame.f_locals, dict[str, Any]()
    try:
        copy = dict(names)
    except (KeyError, RuntimeError) as error:  # another thread deletes a variable meanwhile
        if is_of_signal(error):
            raise
    if sys.version_info < (3, 13) and frame.f_trace is None and sys.getrefcount(names) <= OWN_REFERENCES:
        for name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):  # others were set by `exec`
            names.pop(name, None)
    return copy


def keeper_of(code: CodeType) -> str:
    """Return the function that code calls and whose result would change if the local names were read; "" if none."""
    if sys.version_info >= (3, 13) or not code.co_flags & inspect.CO_OPTIMIZED or _KEEPERS.isdisjoint(code.co_names):
        return ""
    used = {each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"}  # not an attribute
    return min(_KEEPERS & used, default="")
