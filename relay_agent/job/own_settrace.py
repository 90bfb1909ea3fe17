"""Python's own `sys.settrace`, and the names of trace functions.

pydevd replaces `sys.settrace` with a function that warns. The replacement is Python code. A thread that is traced
enters it again and again while another pending call waits (see `job.main_thread`), so code in a pending call that used
it might never return.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

_holder = getattr(sys.modules.get("pydevd_tracing"), "TracingFunctionHolder", None)  # if debugpy was imported before
settrace = getattr(_holder, "_original_tracing", None) or sys.settrace
IGNORE: Any = memoryview(b"").__exit__
"""A trace function that traces no call: C code that returns None, which costs the least."""


def tracer_name(tracer: Any) -> str:
    """Return the qualified name of a trace function; "" if there is none, or if it belongs to the debugger or here."""
    if tracer is None or tracer is IGNORE:
        return ""
    while isinstance(tracer, functools.partial):
        tracer = tracer.func
    kind = type(tracer)
    module = str(getattr(tracer, "__module__", None) or kind.__module__)
    code = getattr(tracer, "__code__", None)
    file = getattr(code, "co_filename", "").rpartition("/")[2]
    package = module.partition(".")[0]
    is_own = package == "relay_agent" or package.startswith(("pydev", "_pydev", "debugpy")) or file == "pydevd.py"
    return "" if is_own else f"{module}.{getattr(tracer, '__qualname__', kind.__qualname__)}"
