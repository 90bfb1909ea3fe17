"""Evaluates an expression in a helper thread, in a frame or in `__main__`, and describes its value or its checksums."""

from __future__ import annotations

import _symtable  # type: ignore[import-not-found] # typeshed lacks it; the job may have a file symtable.py
import ast
import builtins
import contextlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import PurePath
from types import FrameType
from typing import Any, NamedTuple

from relay_agent.job.gevent_originals import threading, time
from relay_agent.job.helper_thread import start_helper
from relay_agent.job.stderr import describe_exception
from relay_agent.stacks.in_process import held_frames, is_users, running_frames
from relay_agent.stacks.local_names import copied_names
from relay_agent.stacks.stopped import stopped_threads
from relay_agent.values.contents import fingerprint, in_full
from relay_agent.values.deadline import Call, TooLate, call_within
from relay_agent.values.plain import read_plain
from relay_agent.values.presentation import short_repr
from relay_agent.values.torch_state import NotRead, as_stopped_thread
from relay_core.agent_api.evaluation import PLAIN_READER, Evaluate, Value

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
            frame = next(filter(is_users, frames), frames[0])
            # One dict for all names; otherwise, a comprehension in the expression would not see locals.
            yield Place(_text(frame), {**frame.f_globals, **copied_names(frame)}, ident)
            return
    program = sys.modules.get(MAIN)
    known = dict(vars(program)) if program is not None else {}
    missing = _names_in(expression) - {*known, *vars(builtins), PLAIN_READER}
    count = 0
    for frame in running_frames(main) if missing and main is not None else ():
        if (names := _names_of(frame, missing)) is not None:
            yield Place(_text(frame, "running"), {**known, **names})
            count += 1
    if not count:
        yield Place(MAIN, known)


def _text(frame: FrameType, state: str = "") -> str:
    """Return a frame for display; a running frame has no line, because it is about to leave it."""
    where = f"{frame.f_code.co_name} {PurePath(frame.f_code.co_filename).name}"
    return f"{where} ({state})" if state else f"{where}:{frame.f_lineno}"


def _names_of(frame: FrameType, missing: set[str]) -> dict[str, Any] | None:
    """Return the names that a running frame sees; None if it does not have the missing ones."""
    code, names = frame.f_code, {**frame.f_globals}
    if code.co_flags & inspect.CO_OPTIMIZED:  # not a class or module
        if missing <= names.keys():
            return names
        if not missing <= {*code.co_varnames, *code.co_cellvars, *code.co_freevars, *names}:
            return None
    names |= copied_names(frame)
    return names if missing <= names.keys() else None


_GLOBAL = (_symtable.GLOBAL_IMPLICIT, _symtable.GLOBAL_EXPLICIT)


def _names_in(expression: str) -> set[str]:
    """Return the names that an expression takes from its surroundings; none if it is not an expression."""
    try:
        tables = [_symtable.symtable(expression.strip(), "<relay-client eval>", "eval")]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    found: set[str] = set()
    for table in tables:
        is_top = table is tables[0]
        for name, flags in table.symbols.items():
            scope = flags >> _symtable.SCOPE_OFF & _symtable.SCOPE_MASK
            # Since Python 3.12, the variables of comprehensions are assigned in the table around them.
            is_outer = not flags & _symtable.DEF_LOCAL if is_top else scope in _GLOBAL
            found |= {name} if flags & _symtable.USE and is_outer else set()
        tables.extend(table.children)
    return found


# Evaluates an expression in a helper thread, and describes its value or computes the value's checksums.
#
# The threads of the job are not involved: one of them may be stopped by an editor, or hang in a collective. Evaluation
# needs the GIL, as all Python code does.

MAX_RUNNING = 4
"""Maximum number of abandoned evaluations that may still be running; each one occupies threads until it returns."""

MISSING = (AttributeError, LookupError, TypeError)
"""What a path raises where it does not exist: `self` may be another object in an outer frame."""
_PATH = (ast.Expression, ast.Name, ast.Load, ast.Attribute, ast.Subscript, ast.Constant)


def start_evaluation(request: Evaluate) -> Callable[[Callable[[Value], None]], None]:
    """Return a function that evaluates in a separate thread, and then calls its argument with the value."""
    return lambda respond: start_helper(lambda: respond(evaluate(request)), "relay-agent evaluation")


def evaluate(request: Evaluate) -> Value:
    """Return the value of an expression, or why there is none, within its time limit."""
    ends = time.monotonic() + request.seconds
    _late[:] = [call for call in _late if call.is_running]
    if len(_late) >= MAX_RUNNING:
        return Value(error=f"{len(_late)} earlier evaluations are still running")
    tried = [Place("", {})]
    try:
        value = call_within(request.seconds, lambda: _value(request, tried, ends))
    except TooLate as late:
        _late.append(late.call)
        return Value(place=tried[-1].text, error=f"the evaluation took longer than {request.seconds:g} s")
    except TimeoutError:
        return Value(place=tried[-1].text, error=f"the evaluation took longer than {request.seconds:g} s")
    except NotRead as error:
        return Value(place=tried[-1].text, error=str(error))
    except BaseException as error:  # noqa: BLE001 - the expression may raise anything, including SystemExit
        return Value(place=tried[-1].text, error=describe_exception(error))
    return replace(value, place=tried[-1].text)


_late: list[Call] = []
"""Calls that were abandoned."""


def _value(request: Evaluate, tried: list[Place], ends: float) -> Value:
    """Evaluate in the best place; a path, which can be tried repeatedly, in the first place in which it exists.

    Args:
        request: The request.
        tried: Receives the place.
        ends: When the time limit expires.
    """
    places = find_places(request.expression)
    tried.append(next(places))
    with as_stopped_thread(tried[-1].thread):
        try:
            value = _in_place(request, tried[-1])
        except MISSING:
            if not _is_path(request.expression):
                raise
            value = _further_out(request, places, tried)
        if request.selection is not None:
            return fingerprint(value, request.selection, ends, request.ranks)
        text = short_repr(value)
        full, digest = in_full(value)
        return Value(text=text, digest=digest, in_full=full)


def _further_out(request: Evaluate, places: Iterable[Place], tried: list[Place]) -> Any:
    """Read a path in the next place in which it exists, or else raise the exception that is being handled."""
    for place in places:
        with contextlib.suppress(*MISSING):
            value = _in_place(request, place)
            tried.append(place)
            return value
    raise  # noqa: PLE0704 - of the first place


def _is_path(expression: str) -> bool:
    if expression.startswith(PLAIN_READER):
        return True
    return all(isinstance(node, _PATH) for node in ast.walk(ast.parse(expression.strip(), mode="eval")))


def _in_place(request: Evaluate, place: Place) -> Any:
    code = compile(request.expression.strip(), "<relay-client eval>", "eval")
    return eval(code, {**place.names, PLAIN_READER: read_plain})  # noqa: S307 - what the request is for, with the rights of a debugger
