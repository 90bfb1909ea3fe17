"""Where an expression is evaluated: in a frame, or in the `__main__` module of this process."""

from __future__ import annotations

import builtins
import contextlib
import inspect
import symtable
import sys
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from types import FrameType
from typing import Any, NamedTuple

from relay_agent.gevent_originals import threading
from relay_agent.stacks.in_process import held_frames, running_frames
from relay_agent.stacks.stopped import stopped_threads
from relay_core.agent_api.evaluation import PATH_READER, PLAIN_READER
from relay_core.agent_api.stacks import is_library

__all__ = ["Place", "find_places"]

MAIN = "__main__"


class Place(NamedTuple):
    """The names that an expression sees."""

    text: str
    """For display: `step train.py:41`, `step train.py (running)`, or `__main__` for the globals of the program."""
    names: dict[str, Any]
    thread: int | None = None
    """The thread that is halted there; None if this process is running."""


def find_places(expression: str) -> Iterator[Place]:
    """Yield where an expression can be evaluated, the best place first; there is at least one.

    If this process is halted, this is the top frame of the user's own code. A process is halted if a debugger has
    stopped it, if it is waiting for a debugger, or if it is held at an exception. A thread that has stopped on its own
    is preferred to those that were stopped along with it, and the main thread to the other threads.

    In a running process, these are the globals of the program or, if the expression has other names, too, the frames of
    the main thread that have all of them, innermost first.
    """
    main = threading.main_thread().ident
    stopped = stopped_threads()
    for ident in sorted({main, *stopped} - {None}, key=lambda ident: (not stopped.get(ident or 0), ident != main)):
        frames = held_frames(ident, is_stopped=ident in stopped)  # type: ignore[arg-type]
        if frames:
            own = (frame for frame in frames if not is_library(frame.f_code.co_filename))
            yield _halted(next(own, frames[0]), ident)
            return
    program = sys.modules.get(MAIN)
    known = dict(vars(program)) if program is not None else {}
    missing = _names_in(expression) - {*known, *vars(builtins), PATH_READER, PLAIN_READER}
    count = 0
    for frame in running_frames(main) if missing and main is not None else ():
        if (names := _names_of(frame, missing)) is not None:
            yield Place(_text(frame, "running"), {**known, **names})
            count += 1
    if not count:
        yield Place(MAIN, known)


def _halted(frame: FrameType, thread: int | None) -> Place:
    # One dict for all names; otherwise, a comprehension in the expression would not see locals.
    return Place(_text(frame), {**frame.f_globals, **_locals(frame)}, thread)


def _locals(frame: FrameType) -> Mapping[str, Any]:
    """Return the local names of a frame, without a method of a namespace that is of the job's own type."""
    own = frame.f_locals
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return own
    return dict(dict.items(own)) if issubclass(type(own), dict) else {}


def _text(frame: FrameType, state: str = "") -> str:
    """Return a frame for display; a running frame has no line, because it is about to leave it."""
    where = f"{frame.f_code.co_name} {PurePath(frame.f_code.co_filename).name}"
    return f"{where} ({state})" if state else f"{where}:{frame.f_lineno}"


def _names_of(frame: FrameType, missing: set[str]) -> dict[str, Any] | None:
    """Return the names that a running frame sees; None if it does not have the missing ones.

    The variables of other frames are not read: before Python 3.13, reading the variables of a function keeps their
    values in memory until it returns.
    """
    code = frame.f_code
    if not code.co_flags & inspect.CO_OPTIMIZED:  # a class or module
        names = {**frame.f_globals, **_locals(frame)}
    elif missing <= frame.f_globals.keys():
        names = {**frame.f_globals}
    elif missing <= {*code.co_varnames, *code.co_cellvars, *code.co_freevars, *frame.f_globals}:
        names = {**frame.f_globals, **_variables(frame)}
    else:
        return None
    return names if missing <= names.keys() else None


def _variables(frame: FrameType) -> dict[str, Any]:
    with contextlib.suppress(KeyError, RuntimeError):  # the thread deletes a variable meanwhile
        return {**frame.f_locals}
    return {}


def _names_in(expression: str) -> set[str]:
    """Return the names that an expression takes from its surroundings; none if it is not an expression."""
    try:
        tables = [symtable.symtable(expression.strip(), "<relay-client eval>", "eval")]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    found: set[str] = set()
    for table in tables:
        is_top = table is tables[0]
        symbols = (one for one in table.get_symbols() if one.is_referenced())
        # Since Python 3.12, the variables of comprehensions are assigned in the table around them.
        found |= {one.get_name() for one in symbols if (not one.is_assigned() if is_top else one.is_global())}
        tables.extend(table.get_children())
    return found
