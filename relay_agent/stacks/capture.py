"""Captures the local variables of frames as short text, without executing code of the job, and without its secrets.

A `repr` of the job may raise, block or change something, so objects are shown by their attributes
(`relay_agent.values.plain`), and arrays by type, shape and device, because reading them may wait for a GPU that hangs.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import Any

from relay_agent.job.gevent_originals import time
from relay_agent.job.signal_handlers import is_of_signal
from relay_agent.stacks.local_names import keeper_of, local_names
from relay_agent.values.plain import Copy
from relay_agent.values.presentation import ShortRepr
from relay_agent.values.secrets import secrets_of_environment

BUDGET = 0.5
"""Time limit in seconds for all values of a process: half of the agent's limit for the whole response."""
MAX_TEXT = 160
"""Maximum number of characters in one value: two lines of a terminal."""
MAX_VARIABLES = 50
"""Maximum number of variables in one frame."""
MAX_TOTAL = 256 * 1024
"""Maximum number of characters in all values together: a fraction of the maximum size of a message to the agent."""
WIDTH = 7
"""Number of elements or attributes that are copied of one value; its text shows six elements."""
MAX_PARTS = 100
"""Maximum number of parts that are copied of one value; its text has no space for more."""

NOT_IN_TIME = "<not shown: reading the values takes too long>"
TOO_MUCH = "<not shown: too many values>"

_DEFINITIONS = (ModuleType, FunctionType, BuiltinFunctionType, type)


def capture(frames: Iterable[FrameType], *, most: int = MAX_TOTAL) -> list[dict[str, str]]:
    """Return the local variables of each frame, as text by name.

    Args:
        frames: The most important frame first, because time and space may run out.
        most: Maximum number of characters in all values together.
    """
    ends, secrets, total = time.monotonic() + BUDGET, secrets_of_environment(), 0
    captured = []
    for frame in frames:
        texts: dict[str, str] = {}
        captured.append(texts)
        if keeper := keeper_of(frame.f_code):
            texts["..."] = f"not read: the function calls {keeper}(), whose result that would change"
            continue
        for name, value in _variables(frame).items():
            is_late = time.monotonic() > ends
            texts[name] = NOT_IN_TIME if is_late else TOO_MUCH if total > most else _text(name, value, secrets)
            total += len(texts[name])
    return captured


_short = ShortRepr(MAX_TEXT)


def _text(name: str, value: object, secrets: list[str]) -> str:
    """Return a short text; it names the exception if there is none."""
    try:
        text = _short.repr(Copy(WIDTH, secrets, max_parts=MAX_PARTS).of(value, 1, name))
    except Exception as error:  # of a library, or the job is changing the value
        if is_of_signal(error):
            raise
        text = f"<not shown: {type(error).__name__}>"
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."


def _variables(frame: FrameType) -> dict[str, Any]:
    """Return the local variables of a frame, without definitions and imports."""
    names = local_names(frame)
    hidden = _DEFINITIONS if frame.f_code.co_name == "<module>" else ()
    shown = [name for name, value in names.items() if name[:2] != "__" and not issubclass(type(value), hidden)]
    return {name: names[name] for name in shown[:MAX_VARIABLES]}
