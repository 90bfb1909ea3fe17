"""Captures the local variables of frames as short text, without executing code of the job, and without its secrets.

A `repr` of the job may raise, block or change something, so objects are shown by their attributes
(`relay_agent.values.plain`), and arrays by type, shape and device, because reading them may wait for a GPU that hangs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import Any

from relay_agent.job.gevent_originals import time
from relay_agent.job.signal_handlers import is_of_signal
from relay_agent.stacks.local_names import copied_names, keeper_of
from relay_agent.values.plain import Copy
from relay_agent.values.presentation import ShortRepr
from relay_agent.values.secrets import secrets_of_environment
from relay_agent.values.torch_state import unseen

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

OTHERS = "..."
"""The name of what stands in place of variables that are not shown."""
NOT_IN_TIME = "<not shown: reading the values takes too long>"
TOO_MUCH = "<not shown: too many values>"

_DEFINITIONS = (ModuleType, FunctionType, BuiltinFunctionType, type)


def capture(
    frames: Iterable[FrameType],
    *,
    most: int = MAX_TOTAL,
    read: Callable[[FrameType], dict[str, Any]] = copied_names,
) -> list[dict[str, str]]:
    """Return the local variables of each frame, as text by name.

    Args:
        frames: The most important frame first, because time and space may run out.
        most: Maximum number of characters in all values together.
        read: Returns the local names of a frame.
    """
    ends, secrets, total = time.monotonic() + BUDGET, secrets_of_environment(), 0
    captured = []
    for frame in frames:
        texts: dict[str, str] = {}
        captured.append(texts)
        if keeper := keeper_of(frame.f_code):
            texts[OTHERS] = f"not read: the function calls {keeper}(), whose result that would change"
            continue
        variables = _variables(frame, read)
        for index, (name, value) in enumerate(variables.items()):
            if time.monotonic() > ends or total > most:
                texts[OTHERS] = TOO_MUCH if total > most else NOT_IN_TIME
                break
            if index == MAX_VARIABLES:
                texts[OTHERS] = f"<not shown: {len(variables) - index:,} more>"
                break
            with unseen():
                texts[name] = _text(name, value, secrets)
            total += len(name) + len(texts[name])
    return captured


_short = ShortRepr(MAX_TEXT, is_static=True)


def _text(name: str, value: object, secrets: list[str]) -> str:
    """Return a short text; it names the exception if there is none."""
    try:
        text = _short.repr(Copy(WIDTH, secrets, max_parts=MAX_PARTS).of(value, 1, name))
    except Exception as error:  # of a library, or the job is changing the value
        if is_of_signal(error):
            raise
        text = f"<not shown: {type(error).__name__}>"
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."


def _variables(frame: FrameType, read: Callable[[FrameType], dict[str, Any]]) -> dict[str, Any]:
    """Return the local variables of a frame, without definitions and imports."""
    names = read(frame)
    hidden = _DEFINITIONS if frame.f_code.co_name == "<module>" else ()
    own = [(name, value) for name, value in names.items() if type(name) is str and name[:2] != "__"]
    return {name: value for name, value in own if not issubclass(type(value), hidden)}
