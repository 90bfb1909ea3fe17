"""Where an expression is evaluated: in the frame at which this process is stopped, or in its `__main__` module."""

from __future__ import annotations

import sys
from pathlib import PurePath
from types import FrameType
from typing import Any, NamedTuple

from relay_agent.gevent_originals import threading
from relay_agent.stacks.in_process import held_frames
from relay_agent.stacks.stopped import stopped_threads
from relay_core.agent_api.stacks import is_library

__all__ = ["Place", "find_place"]

MAIN = "__main__"


class Place(NamedTuple):
    """The names that an expression sees."""

    text: str
    """For display: `step train.py:41`, or `__main__` for the globals of the program."""
    names: dict[str, Any]


def find_place() -> Place:
    """Return the top frame of the user's own code if this process is halted, else the globals of the program.

    A process is halted if a debugger has stopped it, if it is waiting for a debugger, or if it is held at an exception.
    The main thread is preferred.
    """
    main = threading.main_thread().ident
    stopped = stopped_threads()
    for ident in sorted({main, *stopped} - {None}, key=lambda ident: ident != main):
        frames = held_frames(ident, is_stopped=ident in stopped)  # type: ignore[arg-type]
        if frames:
            own = (frame for frame in frames if not is_library(frame.f_code.co_filename))
            return _of_frame(next(own, frames[0]))
    program = sys.modules.get(MAIN)
    return Place(MAIN, dict(vars(program)) if program is not None else {})


def _of_frame(frame: FrameType) -> Place:
    code = frame.f_code
    # One dict for all names; otherwise, a comprehension in the expression would not see locals.
    names = {**frame.f_globals, **frame.f_locals}
    return Place(f"{code.co_name} {PurePath(code.co_filename).name}:{frame.f_lineno}", names)
