"""Hooks at lines by `sys.monitoring`, in Python 3.12 and later.

Only the code objects with a hook have events (`set_local_events`), so all other code keeps its speed, and frames that
are already running have the events at once. The tool id is this package's own: debuggers, coverage and profilers have
others, and `restart_events`, which affects them all, is never called. While a callback is running, Python reports no
other events of its thread, to any tool: an expression that calls the watched function does not reach its line again,
and no debugger stops in it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import CodeType
from typing import Any

from relay_agent.trigger.places import Hook
from relay_core.errors import ConfigurationError

NAME = "relay-debug watch"
"""The name of the tool."""
TOOL_IDS = (3, 4)
"""The ids that Python does not reserve for debuggers (0), coverage (1), profilers (2) or optimizers (5)."""

monitoring: Any = getattr(sys, "monitoring", None)  # None before Python 3.12


class Engine:
    """The hooks of this process."""

    def __init__(self) -> None:
        self._tool: int | None = None
        """The tool id while there are hooks."""
        self._codes: dict[int, CodeType] = {}
        self._hooks: dict[int, dict[int, list[Hook]]] = {}
        """By line, by the id of the code object; to compare code objects would take longer than all the rest."""

    def original(self, code: CodeType) -> CodeType:
        """Return the code object, which is never replaced here."""
        return code

    def set_hooks(self, hooks: Sequence[Hook]) -> str:
        """Replace all hooks, and return what the user should know, in one sentence.

        Raises:
            ConfigurationError: other tools have the tool ids.
        """
        if hooks and self._tool is None:
            self._tool = _take_tool(self._line_reached)
        codes = self._codes | {id(hook.place.code): hook.place.code for hook in hooks}
        before, after = self._hooks, dict[int, dict[int, list[Hook]]]()
        for hook in hooks:
            after.setdefault(id(hook.place.code), {}).setdefault(hook.place.line, []).append(hook)
        self._codes, self._hooks = {key: codes[key] for key in after}, after
        for key, code in codes.items():
            lines = after.get(key, {})
            if lines.keys() != before.get(key, {}).keys():
                monitoring.set_local_events(self._tool, code, 0)  # also ends DISABLE for the lines of this code object
                monitoring.set_local_events(self._tool, code, monitoring.events.LINE if lines else 0)
        if not hooks and self._tool is not None:
            monitoring.register_callback(self._tool, monitoring.events.LINE, None)
            monitoring.free_tool_id(self._tool)
            self._tool = None
        return ""

    def _line_reached(self, code: CodeType, line: int) -> object:
        lines = self._hooks.get(id(code))
        hooks = lines.get(line) if lines is not None else None
        if hooks is None:
            return monitoring.DISABLE
        frame = sys._getframe(1)  # noqa: SLF001 - its documented name
        for place, reached in hooks:
            if not place.ignored or frame.f_lasti not in place.ignored:
                reached(frame)
        return None


def _take_tool(callback: object) -> int:
    for number in TOOL_IDS:
        if monitoring.get_tool(number) is None:
            monitoring.use_tool_id(number, NAME)
            monitoring.register_callback(number, monitoring.events.LINE, callback)
            return number
    taken = " and ".join(f"{number} by {monitoring.get_tool(number)}" for number in TOOL_IDS)
    raise ConfigurationError(
        f"Python's monitoring is in use: tool id {taken}", hint="end one of these tools, or use a log point"
    )
