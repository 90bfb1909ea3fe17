"""Evaluates an expression in a helper thread, and describes its value or computes the value's checksums.

The threads of the job are not involved: one of them may be stopped by an editor, or hang in a collective. Evaluation
needs the GIL, as all Python code does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from relay_agent.evaluation.places import Place, find_place
from relay_agent.exceptions import describe_exception
from relay_agent.gevent_originals import threading, time
from relay_agent.values.deadline import Call, TooLate, call_within
from relay_agent.values.fingerprint import fingerprint
from relay_agent.values.short_repr import short_repr
from relay_agent.values.static_path import read_path
from relay_core.agent_api.evaluation import PATH_READER, Evaluate, Value

__all__ = ["evaluate", "start_evaluation"]

MAX_RUNNING = 4
"""Maximum number of abandoned evaluations that may still be running; each one occupies threads until it returns."""


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
    place = Place("", {})
    try:
        place = call_within(request.seconds, find_place)
        value = call_within(max(0.0, ends - time.monotonic()), lambda: _value(request, place, ends))
    except TooLate as late:
        _late.append(late.call)
        return Value(place=place.text, error=f"the evaluation took longer than {request.seconds:g} s")
    except TimeoutError:
        return Value(place=place.text, error=f"the evaluation took longer than {request.seconds:g} s")
    except BaseException as error:  # noqa: BLE001 - the expression may raise anything, including SystemExit
        return Value(place=place.text, error=describe_exception(error))
    return replace(value, place=place.text)


_late: list[Call] = []
"""Calls that were abandoned."""


def _value(request: Evaluate, place: Place, ends: float) -> Value:
    code = compile(request.expression.strip(), "<relay-client eval>", "eval")
    value = eval(code, {**place.names, PATH_READER: read_path})  # noqa: S307 - what the request is for, with the rights of a debugger
    if request.selection is not None:
        return fingerprint(value, request.selection, ends)
    return Value(text=short_repr(value))
