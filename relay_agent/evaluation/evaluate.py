"""Evaluates an expression in a helper thread, and describes its value or computes the value's checksums.

The threads of the job are not involved: one of them may be stopped by an editor, or hang in a collective. Evaluation
needs the GIL, as all Python code does.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from relay_agent.evaluation.places import Place, find_places
from relay_agent.exceptions import describe_exception
from relay_agent.gevent_originals import threading, time
from relay_agent.values.deadline import Call, TooLate, call_within
from relay_agent.values.fingerprint import fingerprint
from relay_agent.values.plain import read_plain
from relay_agent.values.short_repr import short_repr
from relay_agent.values.static_path import read_path
from relay_agent.values.torch_state import NotRead, as_stopped_thread
from relay_core.agent_api.evaluation import PATH_READER, PLAIN_READER, Evaluate, Value

__all__ = ["evaluate", "start_evaluation"]

MAX_RUNNING = 4
"""Maximum number of abandoned evaluations that may still be running; each one occupies threads until it returns."""

MISSING = (AttributeError, LookupError, TypeError)
"""What a path raises where it does not exist: `self` may be another object in an outer frame."""
_READERS = {PATH_READER: read_path, PLAIN_READER: read_plain}
_PATH = (ast.Expression, ast.Name, ast.Load, ast.Attribute, ast.Subscript, ast.Constant)


def start_evaluation(request: Evaluate, respond: Callable[[Value], None]) -> None:
    """Evaluate in a separate thread, and pass the value to `respond`."""
    _Evaluation(request, respond).start()


class _Evaluation(threading.Thread):
    """The thread that waits for an evaluation; pydevd does not trace, stop or list it."""

    pydev_do_not_trace = True
    is_pydev_daemon_thread = True

    def __init__(self, request: Evaluate, respond: Callable[[Value], None]) -> None:
        super().__init__(name="relay-agent evaluation", daemon=True)
        self._request, self._respond = request, respond

    def run(self) -> None:
        self._respond(evaluate(self._request))


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
        return Value(text=short_repr(value))


def _further_out(request: Evaluate, places: Iterable[Place], tried: list[Place]) -> Any:
    """Read a path in the next place in which it exists, or else raise the exception that is being handled."""
    for place in places:
        with contextlib.suppress(*MISSING):
            value = _in_place(request, place)
            tried.append(place)
            return value
    raise  # noqa: PLE0704 - of the first place


def _is_path(expression: str) -> bool:
    if expression.startswith(tuple(_READERS)):
        return True
    return all(isinstance(node, _PATH) for node in ast.walk(ast.parse(expression.strip(), mode="eval")))


def _in_place(request: Evaluate, place: Place) -> Any:
    code = compile(request.expression.strip(), "<relay-client eval>", "eval")
    return eval(code, {**place.names, **_READERS})  # noqa: S307 - what the request is for, with the rights of a debugger
