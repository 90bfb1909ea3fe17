"""Local variables of frames as short text, even if a `__repr__` raises, returns long text, or never returns.

The repr of a tensor may wait for a GPU that hangs. So the values are formatted in a helper thread, which is abandoned
when it exceeds the time limit, and arrays are described by type, shape and device instead of by their contents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType

from relay_agent.job.gevent_originals import time
from relay_agent.values.deadline import Call, TooLate, call_within
from relay_agent.values.presentation import ShortRepr
from relay_agent.values.torch_state import NotRead

BUDGET = 0.5
"""Time limit in seconds for all values of a process: half of the agent's limit for the whole response."""
MAX_TEXT = 160
"""Maximum number of characters in one value: two lines of a terminal."""
MAX_VARIABLES = 50
"""Maximum number of variables in one frame."""
MAX_TOTAL = 256 * 1024
"""Maximum number of characters in all values together: a fraction of the maximum size of a message to the agent."""

NOT_IN_TIME = "<not shown: its repr takes too long>"
STILL_STUCK = "<not shown: a repr from an earlier request is still running>"
TOO_MUCH = "<not shown: too many values>"


_late: list[Call] = []
"""The last call if it was abandoned; while it is running, no other is started."""


def describe_locals(frames: Sequence[FrameType]) -> list[dict[str, str]]:
    """Return the local variables of each frame, as text by name.

    Args:
        frames: The most important frame first, because time and space may run out.
    """
    values = [_variables(frame) for frame in frames]
    if any(call.is_running for call in _late):
        return [dict.fromkeys(found, STILL_STUCK) for found in values]
    _late.clear()
    described = [dict.fromkeys(found, NOT_IN_TIME) for found in values]
    pending = list(zip(values, described, strict=True))
    try:
        call_within(BUDGET, lambda: _describe_all(pending))
    except TooLate as late:
        _late.append(late.call)
        pending.clear()  # a stuck call must not keep the job's objects alive
    return [dict(texts) for texts in described]  # copies, because a late call continues to write


def _describe_all(pending: list[tuple[Mapping[str, object], dict[str, str]]]) -> None:
    total, ends = 0, time.monotonic() + BUDGET
    for values, texts in pending:
        for name, value in values.items():
            if time.monotonic() > ends:
                return
            texts[name] = describe(value) if total < MAX_TOTAL else TOO_MUCH
            total += len(texts[name])


_short = ShortRepr(MAX_TEXT)


def describe(value: object) -> str:
    """Return a short text; if `__repr__` raises, the text names the exception."""
    try:
        text = _short.repr(value)
    except NotRead as error:
        text = f"<{error}>"
    except BaseException as error:  # noqa: BLE001 - the job's code may raise anything; this thread is not the job's
        text = f"<no repr: {type(error).__name__}>"
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."


def _variables(frame: FrameType) -> Mapping[str, object]:
    """Return the local variables of a frame, without definitions and imports."""
    try:
        values = dict(frame.f_locals)
    except Exception:  # noqa: BLE001 - exec() accepts any mapping for its locals
        return {}
    at_module_level = frame.f_code.co_name == "<module>"
    names = [name for name, value in values.items() if not _is_definition(name, value, at_module_level)]
    return {name: values[name] for name in names[:MAX_VARIABLES]}


def _is_definition(name: str, value: object, at_module_level: bool) -> bool:
    """Whether a variable is a dunder name or, at module level, a module, function or class."""
    definitions = (ModuleType, FunctionType, BuiltinFunctionType, type)
    return name.startswith("__") or (at_module_level and isinstance(value, definitions))
