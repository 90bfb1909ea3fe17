"""How long to wait before dialling again: nothing at first, then longer and longer, and never in step with others.

0, then a random time below 0.2, 0.4, 0.8 ... 15 seconds; from the start again after 30 s of health
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Backoff"]

FIRST_CEILING = 0.2
CAP = 15.0
HEALTHY_AFTER = 30.0
"""Seconds a connection must have lived; a relay that accepts and drops at once must not be hammered."""


class Backoff:
    """The delays of one connection.

    Args:
        random: Returns a float in [0, 1).
    """

    def __init__(self, random: Callable[[], float]) -> None:
        self.failures = 0
        """Since the last healthy spell."""
        self._random = random

    def __repr__(self) -> str:
        return f"<Backoff failures={self.failures}>"

    def is_healthy(self, lived: float) -> bool:
        """Whether a connection that lived so many seconds proves that all is well."""
        return lived >= HEALTHY_AFTER

    def reset(self) -> None:
        """What failed had worked: the next failure is the first one."""
        self.failures = 0

    def next_delay(self, *, lived: float = 0.0) -> float:
        """Return the seconds to wait after a failure.

        Args:
            lived: Seconds that the connection was up before it failed; 0 for an attempt that never succeeded.
        """
        if self.is_healthy(lived):
            self.reset()
        self.failures += 1
        if self.failures == 1:
            return 0.0
        ceiling = min(CAP, FIRST_CEILING * 2.0 ** min(self.failures - 2, 16))
        # Never below half the first ceiling: with full jitter alone a fleet can still spin.
        return max(FIRST_CEILING / 2, ceiling * self._random())
