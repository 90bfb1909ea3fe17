"""The variables of frames as short texts, whatever their `__repr__` does: raise, be long, or never return.

A tensor's repr may wait for a GPU that hangs, so each value is described in a thread that is given up when its time is
over, and arrays are described by what they are instead of what they hold.
"""

from __future__ import annotations

import reprlib
import threading
import time
from collections.abc import Mapping, Sequence
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import Any, ClassVar

__all__ = ["describe_locals"]

BUDGET = 0.5
"""Seconds for all values of a process: half of what the agent waits for the whole answer."""
MAX_TEXT = 160
"""Characters of one value: two lines of a terminal."""
MAX_VARIABLES = 50
"""Variables of one frame."""
MAX_TOTAL = 256 * 1024
"""Characters of all values: a fraction of what the agent takes as one line."""

NOT_IN_TIME = "<not shown: it takes too long>"
STILL_STUCK = "<not shown: the repr of an earlier request still runs>"
TOO_MUCH = "<not shown: too many values>"


def describe_locals(frames: Sequence[FrameType]) -> list[dict[str, str]]:
    """Return the variables of each frame: text by name.

    Args:
        frames: The most interesting ones first, as time and space may run out.
    """
    values = [_variables(frame) for frame in frames]
    described: list[dict[str, str]] = [dict.fromkeys(found, NOT_IN_TIME) for found in values]
    if _Worker.latest is not None and _Worker.latest.is_alive():
        return [dict.fromkeys(found, STILL_STUCK) for found in values]
    _Worker.latest = worker = _Worker(list(zip(values, described, strict=True)))
    worker.start()
    worker.join(BUDGET)
    worker.leave()
    return described


class _Worker(threading.Thread):
    """Fills in texts until it is told to leave them alone; pydevd neither traces, stops nor shows it."""

    pydev_do_not_trace = True
    is_pydev_daemon_thread = True

    latest: ClassVar[_Worker | None] = None
    """While a `__repr__` keeps it alive, no other is started."""

    def __init__(self, variables: Sequence[tuple[Mapping[str, object], dict[str, str]]]) -> None:
        super().__init__(name="relay-agent values", daemon=True)
        self._variables = variables
        self._writing = threading.Lock()
        self._left = False

    def run(self) -> None:
        total, ends = 0, time.monotonic() + BUDGET
        for values, texts in self._variables:
            for name, value in values.items():
                if time.monotonic() > ends:
                    return
                text = describe(value) if total < MAX_TOTAL else TOO_MUCH
                total += len(text)
                with self._writing:
                    if self._left:
                        return
                    texts[name] = text

    def leave(self) -> None:
        """Write nothing from now on."""
        with self._writing:
            self._left = True
        self._variables = ()  # a worker that is stuck must not keep the job's objects alive


class _ShortRepr(reprlib.Repr):
    """The standard library's short repr, with arrays described by type, shape and place."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxstring = self.maxother = self.maxlong = MAX_TEXT

    def repr_instance(self, x: Any, level: int) -> str:
        shape, dtype = getattr(x, "shape", None), getattr(x, "dtype", None)
        if shape is None or dtype is None:
            return super().repr_instance(x, level)
        device = getattr(x, "device", None)
        place = f" on {device}" if device is not None else ""
        return f"<{type(x).__name__} {tuple(shape)} {dtype}{place}>"


_short = _ShortRepr()


def describe(value: object) -> str:
    """Return a short text; an error in a `__repr__` becomes the text."""
    try:
        text = _short.repr(value)
    except Exception as error:  # noqa: BLE001 - it is the job's code
        text = f"<no repr: {type(error).__name__}>"
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."


def _variables(frame: FrameType) -> Mapping[str, object]:
    """Return the variables of a frame that a person would look at."""
    try:
        values = dict(frame.f_locals)
    except Exception:  # noqa: BLE001 - exec() takes any mapping for its locals
        return {}
    at_module_level = frame.f_code.co_name == "<module>"
    names = [name for name, value in values.items() if not _is_furniture(name, value, at_module_level)]
    return {name: values[name] for name in names[:MAX_VARIABLES]}


def _is_furniture(name: str, value: object, at_module_level: bool) -> bool:
    definitions = (ModuleType, FunctionType, BuiltinFunctionType, type)
    return name.startswith("__") or (at_module_level and isinstance(value, definitions))
