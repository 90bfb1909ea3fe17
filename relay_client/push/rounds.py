"""Brings all ranks to the same call of a changed function, in rounds; sans-IO.

A held rank may be one call ahead of other ranks, which then wait for it in a collective and cannot arrive. After a
round that has not brought all ranks to the same call, the held ranks therefore continue to their next call, and the
next round takes twice as long. In a job whose ranks wait for each other in every step, all ranks are then held in the
same step, because no rank can be ahead of a rank that has not reached the collective yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from relay_core.agent_api.push import Pushed, State

__all__ = ["Rounds"]

FIRST_ROUND = 0.5
"""Duration of the first round in seconds; most jobs make several steps in this time."""
LONGEST_ROUND = 20.0
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
        self.nested = False
        """Whether to also hold a rank inside a call to another changed function; the call to a main loop does not
        return."""
        self.is_aligned = False
        """True if all ranks are held at the same function."""
        self.is_stopped = False
        """True if a debugger has stopped a rank, which therefore cannot arrive."""
        self.failed: Pushed | None = None
        """The first rank that has failed."""
        self._left = limit
        self._elapsed = 0.0
        self._seconds = FIRST_ROUND / 2

    def __repr__(self) -> str:
        return f"<Rounds {'aligned' if self.is_aligned else f'{self._left:g} s left'}>"

    def next(self) -> float | None:
        """Return the length of the next round in seconds, or None if there is none."""
        if self.is_aligned or self.is_stopped or self.failed is not None or self._left <= 0:
            return None
        self._seconds = min(self._seconds * 2, LONGEST_ROUND, max(self._left, FIRST_ROUND))
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
        held = Counter({result.place: len(result.members) for result in results if result.state is State.HELD})
        if results and all(result.state is State.HELD for result in results):
            self.is_aligned = len(held) == 1
            self.again = False
            self.place = max(held, key=lambda place: (held[place], place))
        else:
            self.again = True
