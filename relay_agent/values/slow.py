"""Limits for slow values: no `repr` in a job delays the others, whether it sleeps, hangs or is merely slow.

Each `repr` has the deadline `REPR_DEADLINE`. While a `repr` that missed its deadline is still running, no other `repr`
of the same type is started; while `MAX_LATE` such calls are running, none is started at all. All calls share a budget,
which refills with time: a hundred values that take a third of a second each must not take half a minute. All of this
applies to properties, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from relay_agent.gevent_originals import threading, time
from relay_agent.values.deadline import Call, TooLate, call_within
from relay_agent.values.torch_state import NotRead

__all__ = ["FULL_DEADLINE", "REPR_DEADLINE", "within_deadline"]

REPR_DEADLINE = 0.4
"""Deadline in seconds for one `repr`; pydevd warns about values that take 0.5 s."""
FULL_DEADLINE = 5.0
"""Deadline in seconds for a value that the user requested in full, in the Debug Console or for the clipboard."""
MAX_LATE = 4
"""Maximum number of late calls that are still running; each occupies a thread."""
BUDGET = 1.2
"""Size of the budget in seconds of waiting. pydevd resumes the job's other threads after three seconds."""
LEAST = 0.01
"""Deadline in seconds for a `repr` when the budget is used up."""

T = TypeVar("T")

_late: dict[type | tuple[type, str], Call] = {}
_lock = threading.Lock()


class _Budget:
    """Remaining seconds of waiting; refills as fast as time passes."""

    def __init__(self) -> None:
        self._left = BUDGET
        self._since = time.monotonic()

    def take(self, seconds: float) -> float:
        """Return how long a call may take now."""
        now = time.monotonic()
        self._left = min(BUDGET, self._left + now - self._since)
        self._since = now
        return min(seconds, max(LEAST, self._left))

    def spend(self, seconds: float) -> None:
        """Subtract the duration of a call; the time of the call itself does not refill the budget."""
        self._left -= seconds
        self._since = time.monotonic()


_budget = _Budget()


def within_deadline(
    kind: type | tuple[type, str], compute: Callable[[], T], *, seconds: float = REPR_DEADLINE, what: str = "repr"
) -> T | str:
    """Return what the job's code computes, normally a text, or `<Slow: ...>` if that takes too long.

    Args:
        kind: The type of the value, with the name of the attribute if it is not about the whole value.
        compute: Computes it; called in a helper thread.
        seconds: The deadline. A deadline above `REPR_DEADLINE` means that a single value was requested; such a call
            does not use the budget.
        what: What is computed.

    Raises:
        Exception: The exception that `compute` raised.
    """
    with _lock:
        for other in [other for other, call in _late.items() if not call.is_running]:
            del _late[other]
        if kind in _late:
            return f"<Slow: an earlier {what} of this type is still running>"
        if len(_late) >= MAX_LATE:
            return f"<Slow: {len(_late)} earlier calls are still running>"
        limit = seconds if seconds > REPR_DEADLINE else _budget.take(seconds)
    started = time.monotonic()
    try:
        return call_within(limit, compute)
    except TooLate as late:
        _late[kind] = late.call
        return f"<Slow: {what} takes longer than {limit:.2g} s>"
    except NotRead as error:
        return f"<{error}>"
    finally:
        if seconds <= REPR_DEADLINE:
            _budget.spend(time.monotonic() - started)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_late.clear)  # the calls have ended with their threads
