"""Local variables of frames as short text, even if a `__repr__` raises, returns long text, or never returns.

The repr of a tensor may wait for a GPU that hangs. So the values are formatted in a worker thread, which is abandoned
when it exceeds the time limit, and arrays are described by type, shape and device instead of by their contents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import ClassVar

from relay_agent.job.gevent_originals import threading, time
from relay_agent.values.presentation import ShortRepr
from relay_agent.values.torch_state import NotRead, read_torch_state, taken_over

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


def describe_locals(frames: Sequence[FrameType]) -> list[dict[str, str]]:
    """Return the local variables of each frame, as text by name.

    Args:
        frames: The most important frame first, because time and space may run out.
    """
    values = [_variables(frame) for frame in frames]
    described: list[dict[str, str]] = [dict.fromkeys(found, NOT_IN_TIME) for found in values]
    if _Worker.latest is not None and _Worker.latest.is_alive():
        return [dict.fromkeys(found, STILL_STUCK) for found in values]
    _Worker.latest = worker = _Worker(list(zip(values, described, strict=True)))
    worker.start()
    worker.join(BUDGET)
    worker.abandon()
    return described


class _Worker(threading.Thread):
    """Thread that formats values until it is abandoned; pydevd does not trace, stop or list it."""

    pydev_do_not_trace = is_pydev_daemon_thread = True

    latest: ClassVar[_Worker | None] = None
    """The last worker that was started; while a `__repr__` keeps it alive, no other is started."""

    def __init__(self, variables: Sequence[tuple[Mapping[str, object], dict[str, str]]]) -> None:
        super().__init__(name="relay-agent values", daemon=True)
        self._variables = variables
        self._writing = threading.Lock()
        self._abandoned = False

    def run(self) -> None:
        with taken_over(read_torch_state()):
            self._describe_all()

    def _describe_all(self) -> None:
        total, ends = 0, time.monotonic() + BUDGET
        for values, texts in self._variables:
            for name, value in values.items():
                if time.monotonic() > ends:
                    return
                text = describe(value) if total < MAX_TOTAL else TOO_MUCH
                total += len(text)
                with self._writing:
                    if self._abandoned:
                        return
                    texts[name] = text

    def abandon(self) -> None:
        """Stop writing to the texts."""
        with self._writing:
            self._abandoned = True
        self._variables = ()  # a stuck worker must not keep the job's objects alive


_short = ShortRepr(MAX_TEXT)


def describe(value: object) -> str:
    """Return a short text; if `__repr__` raises, the text names the exception."""
    try:
        text = _short.repr(value)
    except NotRead as error:
        text = f"<{error}>"
    except Exception as error:  # noqa: BLE001 - the job's code may raise anything
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
