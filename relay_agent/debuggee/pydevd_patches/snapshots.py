"""Snapshots: what a logpoint whose message begins with `@snap` sends to the editor in place of a text.

What is captured is in `relay_agent.stacks.capture`: it executes no code of the job, hides secrets, and is limited in
time and size. A snapshot is a line of output with values, which the editor requests by their references when the user
expands the line. pydevd knows only the values of stopped threads, so the last snapshots are kept here. The event also
contains all values, for the extension, whose view shows them until the user clears it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from types import FrameType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from relay_agent.debuggee.pydevd_patches.relay_debug_output import Text
from relay_agent.debugpy_internals.table import SNAPSHOTS
from relay_agent.job.gevent_originals import time
from relay_agent.job.signal_handlers import is_of_signal
from relay_agent.stacks.in_process import capture_callers
from relay_core.agent_api.stacks import Frame
from relay_core.dap.messages import FIRST_SNAPSHOT
from relay_core.foreign import printable

if TYPE_CHECKING:
    from relay_agent.trigger.watch import Budget

KEPT = 100
"""Maximum number of snapshots whose values an editor can request."""
MAX_MESSAGE = 1000
"""Maximum number of characters of the message."""
PARTS = 10
"""References of one snapshot: those of the line, of its frames, and of the variables of each frame."""
GONE = "the job has deleted this snapshot"
LEFT_OUT = "is reached too often to take a snapshot each time, so some are left out"

_kept: dict[int, tuple[str, list[Frame]]] = {}
"""The last snapshots, by number: the line, and the frames, innermost first."""
_numbers = itertools.count(1)


@dataclass
class _Pace:
    """How often a logpoint takes snapshots: as often as a watch captures, so that its line does not become slow."""

    budget: Budget
    next: float = 0.0


_paces: WeakKeyDictionary[Any, _Pace] = WeakKeyDictionary()


def take(debugger: Any, breakpoint_: Any, frame: FrameType, message: Callable[[], str]) -> bool:
    """Send the editor a snapshot of a frame and its callers; return False if the last one was a moment ago.

    Args:
        debugger: pydevd's debugger.
        breakpoint_: The logpoint.
        frame: The frame that has reached it, in the current thread.
        message: Returns the text that follows in the line.
    """
    try:
        from relay_agent.trigger.watch import MAX_CAPTURED, Budget  # noqa: PLC0415 - when the first one is wanted
        from relay_core.agent_api.watch import MAX_FRAMES  # noqa: PLC0415

        began = time.perf_counter()
        if (pace := _paces.get(breakpoint_)) is None:
            pace = _paces[breakpoint_] = _Pace(Budget(began))
        if began < pace.next:
            return False
        try:
            text = printable(message(), MAX_MESSAGE)
            frames = capture_callers(frame, MAX_FRAMES, most=MAX_CAPTURED)[::-1]
            _send(debugger, list(frames), f": {text}" if text else "")
        finally:
            pace.next = pace.budget.next_after(began, time.perf_counter())
    except RecursionError:  # the job is just below the limit
        pass
    except Exception as error:
        if is_of_signal(error):
            raise
        SNAPSHOTS.switch_off(error)
    return True


def _send(debugger: Any, frames: list[Frame], text: str) -> None:
    number, first = next(_numbers), frames[0]
    line = f"snapshot {number} at {_place(first)} in {first.function}, {time.strftime('%H:%M:%S')}{text}"
    _kept[number] = line, frames
    _kept.pop(number - KEPT, None)
    parts = [[each.function, _path(each.file), each.line, [*map(list, each.locals.items())]] for each in frames]
    body = {
        "category": "stdout",
        "variablesReference": FIRST_SNAPSHOT + PARTS * number,
        "source": {"path": _path(first.file)},
        "line": first.line,
        "data": {"snapshot": parts},
    }
    output = Text(debugger.cmd_factory, _message, f"{line}\n", body)
    output.size += sum(len(name) + len(value) for each in frames for name, value in each.locals.items())
    debugger.writer.add_command(output)


def _message(_factory: Any, text: str, body: dict[str, Any]) -> Any:
    from _pydevd_bundle.pydevd_net_command import NetCommand  # noqa: PLC0415 - in debug runs only, as below

    return NetCommand(0, 0, {"type": "event", "event": "output", "body": {**body, "output": text}}, is_json=True)


def _place(frame: Frame) -> str:
    return f"{PurePath(frame.file).name}:{frame.line}"


def _path(file: str) -> str:
    """Return the path of a file for the editor."""
    import pydevd_file_utils  # noqa: PLC0415

    return file if file.startswith("<") else str(pydevd_file_utils.map_file_to_client(file)[0])


def values_of(reference: int) -> list[dict[str, Any]]:
    """Return what an editor shows below a reference: the line, the frames, or the variables of a frame.

    The line is the only value of an output, so that VS Code shows the output, and its frames below it.
    """
    number, part = divmod(reference - FIRST_SNAPSHOT, PARTS)
    line, frames = _kept.get(number, (GONE, []))
    if part == 0:
        return [_value(f"snapshot {number}", line, reference + 1 if frames else 0)]
    if part == 1:
        return [_value(each.function, _place(each), reference + index) for index, each in enumerate(frames, 1)]
    return [_value(*each) for frame in frames[part - 2 : part - 1] for each in frame.locals.items()]


def _value(name: str, value: str, reference: int = 0) -> dict[str, Any]:
    return {"name": name, "value": value, "variablesReference": reference}
