"""Checksums of a value before the same steps of all ranks' optimizers, by which a client sees whether replicas differ.

The ranks begin to watch at different moments, so each step needs a number that all of them have in common. It is the
count that most optimizers, such as Adam, keep of their steps. The count may be in a device's memory, so it is read only
at the first step and at those that are due. A step of other optimizers has the number of collective operations that the
process has begun before it, which is equal in all ranks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from relay_agent.collectives.flight_recorder import begun_by_all
from relay_agent.job.gevent_originals import time
from relay_agent.trigger.expression import failure, forget_evaluation
from relay_agent.values.contents import fingerprint, flatten
from relay_core.agent_api.evaluation import Selection
from relay_core.agent_api.watch import Compared
from relay_core.value_parsers import format_ranges

MAX_SECONDS = 10.0
"""Time limit for the checksums of a value."""


class _Number(NamedTuple):
    number: int
    is_counted: bool
    """Whether it is the optimizer's count of its steps, this one included; otherwise, it is that of collectives."""


class CommonSteps:
    """The steps at which all ranks compute checksums.

    Args:
        every: Returns n: a step is due if its number is a multiple of n, or has just passed one.
    """

    def __init__(self, every: Callable[[], int]) -> None:
        self._every = every
        self._last: dict[int, _Number | None] = {}
        """For each optimizer, the number of its last step, if it is known."""

    def is_due(self, optimizer: Any) -> bool:
        """Return whether a step of an optimizer is due; also True if that is unknown, and `describe` raises why."""
        key, every = id(optimizer), self._every()
        is_first, last = key not in self._last, self._last.get(key)
        self._last[key] = None
        try:
            if last and last.is_counted and (last.number + 1) % every:
                number = _Number(last.number + 1, is_counted=True)
            elif is_first and _taken(optimizer) is None:  # it may count from now on
                return False
            else:
                number = _number(optimizer)
        except BaseException as raised:  # noqa: BLE001 - of an object of the job, or of one of its signal handlers
            failure(raised)
            forget_evaluation(raised, sys._getframe())  # noqa: SLF001 - its documented name
            return True
        self._last[key] = number
        if last is None or last.is_counted != number.is_counted:
            return False
        return number.number // every > last.number // every

    def describe(self, optimizer: Any) -> str:
        """Return the step that is due, in the same words in all ranks.

        Raises:
            ConfigurationError: nothing counts the steps.
        """
        number, is_counted = self._last.get(id(optimizer)) or _number(optimizer)
        which = f"number {number}" if is_counted else f"after {number} collective operations"
        return f"before {type(optimizer).__name__}.step() {which}"


def _taken(optimizer: Any) -> Any:
    """Return how many steps an optimizer has taken; None if it does not count."""
    state: dict[str, Any] = next(iter(optimizer.state.values()), {})
    return state.get("step")


def _number(optimizer: Any) -> _Number:
    taken = _taken(optimizer)
    return _Number(begun_by_all(), is_counted=False) if taken is None else _Number(int(taken) + 1, is_counted=True)


def compare(value: object, selection: Selection) -> Compared:
    """Return the checksums of a selection of a value, and the ranks that hold the same value.

    Of a value that is sharded, these are the ranks that hold the same parts of it, if there are any others.

    Raises:
        TimeoutError: computing the checksums took longer than `MAX_SECONDS`.
        LookupError: the value has no such part.
    """
    until = time.monotonic() + MAX_SECONDS
    holders = [leaf.holders for leaf in flatten(value) if leaf.shard]
    same = frozenset.intersection(*holders) if holders else frozenset()
    ranks = format_ranges(sorted(same)) if len(same) > 1 else "all"
    return Compared(fingerprint(value, selection, until, ranks), selection, ranks)
