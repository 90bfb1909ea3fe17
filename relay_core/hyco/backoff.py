"""Exponential backoff with jitter for reconnecting.

The first retry is immediate. Each further one waits a random time below 0.2, 0.4, 0.8 ... 15 seconds. A connection that
lasted 30 seconds resets the sequence.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Backoff"]

FIRST_CEILING = 0.2
CAP = 15.0
HEALTHY_AFTER = 30.0
"""Seconds after which a connection counts as healthy. A shorter one does not reset the delays, so that a relay which
accepts connections and drops them at once is not flooded with retries."""


class Backoff:
    """The retry delays of one connection.

    Args:
        random: Returns a float in [0, 1).
    """

    def __init__(self, random: Callable[[], float]) -> None:
        self.failures = 0
        """Consecutive failures since the last healthy connection."""
        self._random = random

    def __repr__(self) -> str:
        return f"<Backoff failures={self.failures}>"

    def is_healthy(self, lived: float) -> bool:
        """Return True if a connection that lasted `lived` seconds counts as healthy."""
        return lived >= HEALTHY_AFTER

    def reset(self) -> None:
        """Start the sequence of delays again."""
        self.failures = 0

    def next_delay(self, *, lived: float = 0.0) -> float:
        """Return the seconds to wait after a failure.

        Args:
            lived: Seconds that the connection was up before it failed; 0 if it was never established.
        """
        if self.is_healthy(lived):
            self.reset()
        self.failures += 1
        if self.failures == 1:
            return 0.0  # most losses are one-off, such as the relay's daily recycling of listeners
        ceiling = min(CAP, FIRST_CEILING * 2.0 ** min(self.failures - 2, 16))  # 16: far above CAP, and no overflow
        # At least half the first ceiling: full jitter alone can return delays near 0 several times in a row.
        return max(FIRST_CEILING / 2, ceiling * self._random())
