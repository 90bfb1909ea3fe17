"""Names of functions in debugpy's stack traces."""

from __future__ import annotations

from relay_core.dap.messages import Body

__all__ = ["function_of"]

_CURRENT = " (Current frame)"
"""pydevd appends this to the name of the frame in which a thread is stopped while an exception is shown."""


def function_of(frame: Body) -> str:
    """Return the name of a StackFrame's function, as the program defines it."""
    return str(frame["name"]).removesuffix(_CURRENT)
