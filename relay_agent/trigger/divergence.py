"""Checksums of a value before the same steps of all ranks' optimizers, by which a client sees whether replicas differ.

The ranks begin to watch at different moments, so each step needs a name that all of them have in common. It contains
the count that most optimizers, such as Adam, keep of their steps. The count may be in a device's memory, so it is read
only at the first step and at those that are due. If several optimizers of a class take steps, as those of two networks
do, the name also contains the number of their parameters' elements; with equal numbers, they cannot be distinguished.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from relay_agent.job.gevent_originals import time
from relay_agent.trigger.expression import failure
from relay_agent.values.contents import fingerprint, flatten
from relay_core.agent_api.evaluation import Selection
from relay_core.agent_api.watch import Compared
from relay_core.value_parsers import format_ranges

MAX_SECONDS = 10.0
"""Time limit for the checksums of a value."""
MAX_UNCOUNTED = 3
"""Steps without a count after which an optimizer does not count; the first one of Adam has none either."""


@dataclass
class _Optimizer:
    kind: str
    elements: int
    """How many elements its parameters have."""
    number: int = 0
    """The number of the last step; 0 if it is not known."""
    uncounted: int = 0


class CommonSteps:
    """The steps at which all ranks compute checksums.

    Args:
        every: Returns n: a step is due if its number is a multiple of n.
        remark: Shows a sentence to the user.
    """

    def __init__(self, every: Callable[[], int], remark: Callable[[str], None]) -> None:
        self._every = every
        self._remark = remark
        self._known: dict[int, tuple[Any, _Optimizer]] = {}
        """The optimizers by id, each with a weak reference that shows whether it still exists."""

    def is_due(self, optimizer: Any) -> bool:
        """Return whether a step of an optimizer is due."""
        try:
            return self._is_due(optimizer)
        except BaseException as raised:  # noqa: BLE001 - of an object of the job, or of one of its signal handlers
            self._remark(f"an optimizer cannot be read, so its steps are not compared: {failure(raised)}")
            return False

    def describe(self, optimizer: Any) -> str:
        """Return the name of a step that is due."""
        found = self._known[id(optimizer)][1]
        same = [other for _, other in self._known.values() if other.kind == found.kind]
        which = f" of the optimizer with {found.elements:,} elements" if len(same) > 1 else ""
        return f"before {found.kind}.step() number {found.number}{which}"

    def _is_due(self, optimizer: Any) -> bool:
        found = self._find(optimizer)
        last, every = found.number, self._every()
        if not last or (last + 1) % every == 0:
            taken = _taken(optimizer)
            found.uncounted = found.uncounted + 1 if taken is None else 0
            found.number = 0 if taken is None else int(taken) + 1
            if found.uncounted == MAX_UNCOUNTED:
                self._remark(f"{found.kind} does not count its steps, so those of the ranks cannot be compared")
        else:
            found.number = last + 1
        return bool(last) and found.number > last and found.number % every == 0 and self._is_unique(found)

    def _is_unique(self, found: _Optimizer) -> bool:
        self._known = {key: known for key, known in list(self._known.items()) if known[0]() is not None}
        like = found.kind, found.elements
        count = sum((other.kind, other.elements) == like for _, other in self._known.values())
        if count > 1:
            size = f"{count} {found.kind} optimizers have parameters of {found.elements:,} elements each"
            self._remark(f"{size}, so their steps cannot be compared")
        return count == 1

    def _find(self, optimizer: Any) -> _Optimizer:
        known = self._known.get(id(optimizer))
        if known is not None and known[0]() is optimizer:
            return known[1]
        elements = sum(parameter.numel() for group in optimizer.param_groups for parameter in group["params"])
        found = _Optimizer(type(optimizer).__name__, elements)
        self._known[id(optimizer)] = weakref.ref(optimizer), found
        return found


def _taken(optimizer: Any) -> Any:
    """Return how many steps an optimizer has taken, by a parameter that this step will change; None if unknown."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                return optimizer.state.get(parameter, {}).get("step")
    return None


def compare(value: object, selection: Selection) -> Compared:
    """Return the checksums of a selection of a value, and the ranks that hold the same value.

    Of a value that is sharded, these are the ranks that hold the same parts of it, if there are any others.

    Raises:
        TimeoutError: computing the checksums took longer than `MAX_SECONDS`.
        LookupError: the value has no such part.
        ValueError: the value has too many parts.
    """
    until = time.monotonic() + MAX_SECONDS
    holders = [leaf.holders for leaf in flatten(value) if leaf.shard]
    same = frozenset.intersection(*holders) if holders else frozenset()
    ranks = format_ranges(sorted(same)) if len(same) > 1 else "all"
    try:
        return Compared(fingerprint(value, selection, until, ranks), selection, ranks)
    except TimeoutError:
        raise TimeoutError(f"the checksums took longer than {MAX_SECONDS:g} s") from None
