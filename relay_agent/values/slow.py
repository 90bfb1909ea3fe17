"""Limits of what is shown: no `repr` of a job holds up the others, whether it sleeps, hangs or is merely slow.

A `repr` has `REPR_DEADLINE`. While one is running that was late, others of its type are not started, and none at all
beyond `MAX_LATE`. And all of them share a budget, which refills with time: a hundred values that take a third of a
second each must not take half a minute.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from relay_agent.values.deadline import Call, TooLate, call_within

__all__ = ["FULL_DEADLINE", "REPR_DEADLINE", "within_deadline"]

REPR_DEADLINE = 0.4
"""Seconds for one `repr`; pydevd warns of values that take 0.5 s."""
FULL_DEADLINE = 5.0
"""Seconds for one that the user has requested in full, in the Debug Console or for the clipboard."""
MAX_LATE = 4
"""Late calls that may be running: each has a thread."""
BUDGET = 1.2
"""Seconds of waiting that are available at once. pydevd resumes the other threads of the job after three."""
LEAST = 0.01
"""Seconds for a `repr` when the budget is used up."""

_late: dict[type, Call] = {}
_lock = threading.Lock()


class _Budget:
    """Seconds of waiting; refills as fast as time passes."""

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
        """Subtract what a call has taken; the time that has passed meanwhile does not refill the budget."""
        self._left -= seconds
        self._since = time.monotonic()


_budget = _Budget()


def within_deadline(
    kind: type, compute: Callable[[], str], *, seconds: float = REPR_DEADLINE, what: str = "repr"
) -> str:
    """Return a text that code of the job computes, or `<Slow: ...>` if that takes too long.

    Args:
        kind: The type of the value.
        compute: Returns the text; is called in a helper thread.
        seconds: The deadline; those above `REPR_DEADLINE` are for requests of one value, and have no budget.
        what: What is computed.

    Raises:
        Exception: `compute` has raised it.
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
    finally:
        if seconds <= REPR_DEADLINE:
            _budget.spend(time.monotonic() - started)
