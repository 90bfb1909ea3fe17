"""When relay-client next searches for agents while no caller is waiting for one; no I/O.

    no agent can be reached                   every 4 s for an hour: an agent may start listening at any time
    an agent has just been found or lost      every 4 s for a minute: the other nodes of the job may follow
    otherwise                                 every 30 s

A search makes one connection attempt on each hybrid connection; the relay answers the attempt with 404 if there are no
more agents. If the relay picks listeners at random, a search makes one more attempt for each known agent. An attempt
transfers about 6 KB, mostly for TLS; one attempt every 4 s amounts to about 5 MB per hour for each hybrid connection.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["SearchSchedule"]

SHORT = 4.0
"""Seconds between searches while an agent is expected."""
LONG = 30.0
"""Seconds between searches otherwise."""
JITTER = 0.2
"""Fraction by which each interval varies at random, so that the searches of many clients do not coincide."""
EXPECTED_FOR = 3600.0
"""Seconds for which an agent is expected while no agent can be reached."""
SETTLING = 60.0
"""Seconds after a change in the number of reachable agents during which further agents are expected."""


class SearchSchedule:
    """Decides when the next search begins.

    Args:
        random: Returns a float in [0, 1).
        now: The current time in seconds, by any clock that does not go backwards.
    """

    def __init__(self, random: Callable[[], float], now: float) -> None:
        self._random = random
        self._agents = 0
        """Number of reachable agents at the last call of `left`."""
        self._changed_at = self._searched_at = now
        self._factor = 1.0

    def __repr__(self) -> str:
        return f"<SearchSchedule agents={self._agents}>"

    def searched(self, now: float) -> None:
        """Record that a search has ended."""
        self._searched_at = now
        self._factor = 1 + JITTER * (2 * self._random() - 1)

    def left(self, agents: int, now: float) -> float:
        """Return the seconds until the next search begins; 0 or less if the search is due.

        Args:
            agents: Number of reachable agents.
            now: The current time.
        """
        if agents != self._agents:
            self._agents = agents
            self._changed_at = now
        is_expecting = now - self._changed_at < (SETTLING if agents else EXPECTED_FOR)
        return self._searched_at + self._factor * (SHORT if is_expecting else LONG) - now
