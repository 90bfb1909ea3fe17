"""Hooks at lines by `sys.monitoring`, in Python 3.12 and later.

Only the code objects with a hook have events (`set_local_events`), so all other code keeps its speed, and frames that
are already running have the events at once. The tool id is this package's own: debuggers, coverage and profilers have
others, and `restart_events`, which affects them all, is never called. While a callback is running, Python reports no
other events of its thread, to any tool: an expression that calls the watched function does not reach its line again,
and no debugger stops in it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import Any

from relay_agent.trigger.places import Hook
from relay_core.errors import ConfigurationError

NAME = "relay-debug watch"
"""The name of the tool."""
TOOL_IDS = (3, 4)
"""The ids that Python does not reserve for debuggers (0), coverage (1), profilers (2) or optimizers (5)."""

_Lines = dict[int, list[tuple[CodeType, frozenset[int], Callable[[], int], Callable[[FrameType, int], None]]]]
"""What hooks contain, by line, in the form that takes the least time to read. Those at returns, of which all functions
would have the same number, are under the negative id of the code object."""

monitoring: Any = getattr(sys, "monitoring", None)  # None before Python 3.12


class Engine:
    """The hooks of this process."""

    def __init__(self) -> None:
        self._tool: int | None = None
        """The tool id while there are hooks."""
        self._lines: _Lines = {}

    def set_hooks(self, hooks: Sequence[Hook]) -> str:
        """Replace all hooks, and return what the user should know, in one sentence.

        Raises:
            ConfigurationError: other tools have the tool ids.
        """
        if self._tool is not None and monitoring.get_tool(self._tool) != NAME:  # another tool has freed it
            self._tool, self._lines = None, {}
        if hooks and self._tool is None:
            self._tool = _take_tool(self._reached)
        before = self._lines
        new: _Lines = {}
        for hook in hooks:
            found = (hook.place.code, hook.place.ignored, hook.reached, hook.report)
            new.setdefault(hook.place.line or -id(hook.place.code), []).append(found)
        self._lines = new  # at once: a line that is reached meanwhile, and is not in it, would be disabled
        lines_before, lines = _by_code(before), _by_code(self._lines)
        for key, (code, _) in {**lines_before, **lines}.items():
            if lines.get(key) != lines_before.get(key):
                monitoring.set_local_events(self._tool, code, 0)  # also ends DISABLE for the lines of this code object
                monitoring.set_local_events(self._tool, code, _events(lines[key][1]) if key in lines else 0)
        if not hooks and self._tool is not None:
            _set_callback(self._tool, None)
            monitoring.free_tool_id(self._tool)
            self._tool = None
        return ""

    def disarm(self) -> None:
        """Remove all hooks."""
        self.set_hooks([])

    def _reached(self, code: CodeType, line: int, *returned: object) -> object:
        """Call the hooks at a line or, if there is a value that the function returns, at the return."""
        line = -id(code) if returned else line
        result = monitoring.DISABLE
        try:
            for own, ignored, reached, report in self._lines.get(line, ()):
                if own is code:
                    result = None
                    if ignored and sys._getframe(1).f_lasti in ignored:  # noqa: SLF001 - its documented name
                        continue
                    if number := reached():
                        report(sys._getframe(1), number)  # noqa: SLF001 - as above
        except RecursionError:  # the job is just below the limit
            pass
        return result


def _by_code(lines: _Lines) -> dict[int, tuple[CodeType, set[int]]]:
    """Return the code objects with hooks and their lines, by the id of the code object."""
    found: dict[int, tuple[CodeType, set[int]]] = {}
    for line, hooks in lines.items():
        for code, *_ in hooks:
            found.setdefault(id(code), (code, set()))[1].add(line)
    return found


def _events(lines: set[int]) -> int:
    events = monitoring.events
    return (events.LINE if max(lines) > 0 else 0) | (events.PY_RETURN if min(lines) < 0 else 0)


def _set_callback(tool: int, callback: object) -> None:
    for event in (monitoring.events.LINE, monitoring.events.PY_RETURN):
        monitoring.register_callback(tool, event, callback)


def _take_tool(callback: object) -> int:
    for number in TOOL_IDS:
        if monitoring.get_tool(number) is None:
            monitoring.use_tool_id(number, NAME)
            _set_callback(number, callback)
            return number
    taken = " and ".join(f"{number} by {monitoring.get_tool(number)}" for number in TOOL_IDS)
    raise ConfigurationError(
        f"Python's monitoring is in use: tool id {taken}", hint="end one of these tools, or use a logpoint"
    )
