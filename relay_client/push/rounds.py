"""Brings all ranks to the same call of a changed function, in rounds; sans-IO.

A rank may be ahead of others: by one call if each of its collective operations waits for the others, and by any number
of calls if it only starts the operations, as with NCCL. Ranks that know how many collective operations they have begun
are therefore compared: those that are behind continue until they have begun as many as the one that is ahead, while the
others are held. They can, because nothing that they wait for is missing.

Ranks without such counts cannot be compared. A held rank may then be one call ahead of other ranks, which wait for it
in a collective and cannot arrive. After a round that has not brought all ranks to the same call, the held ranks
therefore continue to their next call, and the next round takes twice as long.

While a rank is held, the job stands. All rounds together hold a rank for no longer than a twelfth of the time limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from relay_core.agent_api.push import Pushed, State

__all__ = ["Rounds"]

FIRST_ROUND = 0.5
"""Duration of the first round in seconds; most jobs make several steps in this time."""
SHARE_HELD = 12
"""The time limit divided by the time for which ranks may be held: 5 s of the default of 60 s."""
NESTED_AFTER = 5.0
"""Total duration of all rounds in seconds after which calls inside another changed function also count."""


class Rounds:
    """The rounds of one push.

    Args:
        limit: Seconds after which to give up.
    """

    def __init__(self, limit: float) -> None:
        self.place = ""
        """The function at which to hold; "" for any, as long as no round has held all ranks."""
        self.again = False
        """Whether ranks that are held continue to their next call."""
        self.targets: Mapping[str, int] = {}
        """The counts until which ranks continue that have begun fewer collective operations."""
        self.nested = False
        """Whether to also hold a rank inside a call to another changed function; the call to a main loop does not
        return."""
        self.is_aligned = False
        """True if all ranks are held at the same function."""
        self.is_same_step = False
        """True if they have also begun the same collective operations, or if there is only one rank."""
        self.is_stopped = False
        """True if a debugger has stopped a rank, which therefore cannot arrive."""
        self.failed: Pushed | None = None
        """The first rank that has failed."""
        self._left = limit
        self._may_hold = max(limit / SHARE_HELD, FIRST_ROUND)
        """Seconds for which ranks may still be held."""
        self._elapsed = 0.0
        self._seconds = FIRST_ROUND / 2
        self._counts: list[Mapping[str, int]] = []
        """The counts after the last round."""

    def __repr__(self) -> str:
        return f"<Rounds {'aligned' if self.is_aligned else f'{self._left:g} s left'}>"

    def next(self) -> float | None:
        """Return the length of the next round in seconds, or None if there is none."""
        if self.is_aligned or self.is_stopped or self.failed is not None or min(self._left, self._may_hold) <= 0:
            return None
        self._seconds = min(self._seconds * 2, self._may_hold, max(self._left, FIRST_ROUND))
        return self._seconds

    def received(self, results: Sequence[Pushed], elapsed: float) -> None:
        """Process the results of a round.

        Args:
            results: The results of all ranks, grouped or not.
            elapsed: How long the round took, in seconds.
        """
        self._left -= elapsed
        self._elapsed += elapsed
        self.nested = self._elapsed >= NESTED_AFTER
        self.failed = next((result for result in results if result.state is State.FAILED), None)
        self.is_stopped = any(result.state is State.STOPPED for result in results)
        held = [result for result in results if result.state is State.HELD]
        places = Counter[str]()
        for result in held:
            places[result.place] += len(result.members)
        self.targets = _highest(results)
        are_behind = any(_is_behind(result, self.targets) for result in held)
        if held and len(held) == len(results):
            self.again = False
            self.place = max(places, key=lambda place: (places[place], place))
            self.is_aligned = len(places) == 1 and not are_behind
            self.is_same_step = self.is_aligned and (bool(self.targets) or sum(places.values()) == 1)
        else:
            counts = [result.counts for result in results]
            is_moving = bool(self.targets) and (are_behind or counts != self._counts)
            self.again = not is_moving
            self._counts = counts
        if held and not self.is_aligned:
            self._may_hold -= elapsed


def _highest(results: Sequence[Pushed]) -> dict[str, int]:
    """Return the highest count of each process group; {} if a rank has no counts, or none has begun an operation."""
    if not all(result.counts for result in results):
        return {}
    names = {name for result in results for name in result.counts}
    highest = {name: max(result.counts.get(name, 0) for result in results) for name in names}
    return highest if any(highest.values()) else {}


def _is_behind(result: Pushed, targets: Mapping[str, int]) -> bool:
    return any(number < targets.get(name, 0) for name, number in result.counts.items())
