"""Finds tools that have taken the place of the debugger in this process, so that breakpoints are not hit.

Up to Python 3.11, the debugger needs the trace function of each thread, and a thread has only one: a coverage tool or a
profiler that sets its own removes the debugger's. Later versions have `sys.monitoring`, where each tool has an id, and
the debugger needs one particular id.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import operator
import re
import sys
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any, ClassVar

__all__ = ["TracerWatch", "foreign_tool", "tracer_name"]

WAY_OUT = (
    "hint: run the job without it while you debug, or with Python 3.12 or later, where the debugger does not need a "
    "trace function"
)
_CALL = re.compile(r'File "(.*)", line (\d+)')
"""The caller of `sys.settrace` in pydevd's warning."""


def foreign_tool() -> str:
    """Return a line if another tool has the debugger's id in `sys.monitoring`; otherwise ""."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined] # Python 3.12
    tool = monitoring.get_tool(monitoring.DEBUGGER_ID)
    if tool == "pydevd":
        return ""
    holder = "nothing" if tool is None else repr(tool)
    return (
        f"breakpoints are not hit: {holder} uses the debugger's tool id of sys.monitoring ({monitoring.DEBUGGER_ID}). "
        "hint: run the job without that tool while you debug"
    )


class TracerWatch:
    """Reports other trace functions, each once.

    Args:
        warnings: pydevd's warnings about calls of `sys.settrace` that have been shown. pydevd adds each call once, so
            this class empties them.
    """

    def __init__(self, warnings: MutableMapping[str, object]) -> None:
        self._warnings = warnings
        self._warnings.clear()
        self._probe = _MainThreadProbe()
        self._reported: set[str] = set()

    def __repr__(self) -> str:
        return f"<TracerWatch reported={sorted(self._reported)}>"

    def lines(self) -> Iterator[str]:
        """Yield a line for each trace function that was found since the last call."""
        places = self._places()
        name = self._probe.name()
        if name and name not in self._reported:
            self._reported.update({name, *places})
            at = f" (set in {places[0]})" if places else ""
            yield f"breakpoints in the main thread are not hit: {name}{at} has replaced the debugger. {WAY_OUT}"
            return
        for place in places:
            if place not in self._reported:
                self._reported.add(place)
                yield f"breakpoints may not be hit in a thread that called sys.settrace() in {place}. {WAY_OUT}"

    def _places(self) -> list[str]:
        found = [_CALL.search(warning) for warning in list(self._warnings)]
        return [f"{'/'.join(Path(each[1]).parts[-2:])}:{each[2]}" for each in found if each is not None]


class _MainThreadProbe:
    """Reads the trace function of the main thread, when that thread next runs Python code.

    Only functions written in C are called there, because a developer could step into others.
    """

    _kept: ClassVar[list[_MainThreadProbe]] = []
    """All probes: the call may come long after the editor has left, when a function written in C returns."""

    def __init__(self) -> None:
        self._kept.append(self)
        self._found: list[object] = []
        self._call: object = None
        self._last_call: object = None
        """C callbacks, which must outlive their call."""

    def name(self) -> str:
        """Return the name of the trace function, if it was found since the last call and is not the debugger's."""
        if self._call is not None and not self._found:
            return ""
        names = [tracer_name(each) for each in self._found]
        self._found.clear()
        self._last_call, self._call = self._call, _pending_call(self._found)
        return names[0] if names else ""


def _pending_call(found: list[object]) -> object:
    """Make the main thread append its trace function to a list (Py_AddPendingCall)."""
    once = itertools.islice(iter(sys.gettrace, found), 1)
    appended = map(found.append, once)
    # `countOf` compares the result of `append`, which is None, with the argument, and returns the 0 that is required.
    call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(functools.partial(operator.countOf, appended))
    ctypes.pythonapi.Py_AddPendingCall(call, ctypes.c_void_p(1))
    return call


def tracer_name(tracer: Any) -> str:
    """Return the qualified name of a trace function; "" if there is none, or if it belongs to the debugger."""
    if tracer is None:
        return ""
    while isinstance(tracer, functools.partial):
        tracer = tracer.func
    kind = type(tracer)
    module = str(getattr(tracer, "__module__", None) or kind.__module__)
    code = getattr(tracer, "__code__", None)
    file = Path(getattr(code, "co_filename", "")).name
    package = module.partition(".")[0]
    is_own = package == "relay_agent" or package.startswith(("pydev", "_pydev", "debugpy")) or file == "pydevd.py"
    return "" if is_own else f"{module}.{getattr(tracer, '__qualname__', kind.__qualname__)}"
