"""The search for agents, shared by all callers that are waiting for an agent or a target; changes wake the callers.

It is repeated in the background at the intervals of `SearchSchedule`, also while no caller is waiting.

Why one search for all callers: a search finds every agent, whoever asks. With one search for each waiting port, 64
ports would make 64 connections for each retry, all with the same answer. So callers are demands (`_Demand`), and
`_wanted` is called before each probe: a new caller raises the effort of a search that is running, and the last one that
is satisfied ends it.

Why `changed` is replaced instead of cleared: a caller that has taken the event before it checks cannot miss a change
between the check and the wait, and a change needs no lock, so it can be announced from callbacks. (Without an `await`
between the check and the wait, the order does not matter.) With one event that is set and cleared, a caller that is not
waiting at that moment would miss it; an `asyncio.Condition` needs an `await` to notify.

What is ugly: `start` runs a second search beside the shared one. The shared one may be waiting up to 10 s for a
listener that was killed, and that is just when the successor must be found. Both probe the same hybrid connection, so
for a moment there are twice as many probes; `START_INTERVAL` and `MAX_MISSES` limit how often.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Callable
from typing import NoReturn, TypeVar

from relay_client.agents.discovery import FamilyDiscovery, SearchEffort
from relay_client.agents.roster import Roster
from relay_core.errors import HybridConnectionNotFound, NoListener, RelayDebugError, RelayUnreachable
from relay_core.net.session.transport import TooManySessions
from relay_core.net.tasks import TaskSet, first_completed

logger = logging.getLogger(__name__)


# When relay-client next searches for agents while no caller is waiting for one; no I/O.
#
#     no agent can be reached                   every 4 s for an hour: an agent may start listening at any time
#     an agent has just been found or lost      every 4 s for a minute: the other nodes of the job may follow
#     otherwise                                 every 30 s
#
# A search makes one connection attempt on each hybrid connection; the relay answers the attempt with 404 if there are
# no more agents. If the relay picks listeners at random, a search makes one more attempt for each known agent. An
# attempt transfers about 6 KB, mostly for TLS; one attempt every 4 s amounts to about 5 MB per hour for each hybrid
# connection.

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
        """Number of reachable agents at the last call of `remaining`."""
        self._changed_at = self._searched_at = now
        self._factor = 1.0

    def searched(self, now: float) -> None:
        """Record that a search has ended."""
        self._searched_at = now
        self._factor = 1 + JITTER * (2 * self._random() - 1)

    def remaining(self, agents: int, now: float) -> float:
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


RETRY_DELAYS = (0.5, 1.0, 2.0, 3.0, 5.0)
"""Seconds between searches while a caller is waiting for an agent; the last delay is repeated."""
NO_AGENT = "no agent"
"""The kind of reason that applies if the relay can be reached but has no usable agent; see `_report`."""
START_INTERVAL = 0.2
"""Minimum number of seconds between two searches that are started because a known agent was not found."""
THOROUGH: SearchEffort = 8
"""The effort while a caller is waiting; see `relay_client.agents.discovery`."""
BACKGROUND: SearchEffort = 1
"""The effort while no caller is waiting; it is low, because the search is repeated anyway."""

T = TypeVar("T")
_Demand = tuple[Callable[[], object], SearchEffort]
"""A caller that is waiting: its function, which returns None until there is a result, and the effort of its search."""


class AgentSearch:
    """Finds agents for callers that are waiting for a target, a port or any agent.

    Args:
        discovery: Finds agents.
        tasks: Owns the running search.
    """

    def __init__(self, discovery: FamilyDiscovery, tasks: TaskSet) -> None:
        self._discovery = discovery
        self._tasks = tasks
        self._running: asyncio.Task[RelayDebugError | None] | None = None
        self._started_at = -START_INTERVAL
        """When the last search that `start` scheduled began or will begin, by the event loop's clock."""
        self._demands: list[_Demand] = []
        self.changed = asyncio.Event()
        """The event that is set when an agent is next found, lost, reached again or removed, or announces a change."""

    def announce_change(self) -> None:
        """Wake all waiting callers; each of them checks whether the change concerns it."""
        self.changed.set()
        self.changed = asyncio.Event()

    async def find(self, found: Callable[[], T | None], effort: SearchEffort = THOROUGH) -> T:
        """Search for agents until `found` returns a result, and return it.

        Raises:
            NoListener: there are no more agents.
            RelayDebugError: the search ended for any other reason.
        """
        demand = found, effort
        self._demands.append(demand)
        try:
            while (result := found()) is None:
                search = self._join_search()
                await first_completed(search, self.changed.wait())
                if search.done() and found() is None and (error := search.result()) is not None:
                    raise error
            return result
        finally:
            self._demands.remove(demand)

    async def find_first(self, found: Callable[[], T | None]) -> T:
        """Search for all agents until `found` returns a result, and return it while the search continues.

        The caller will search for all agents next. If the search ended in between on one hybrid connection of a family,
        the agents there would be found only by the next search.

        Raises:
            The same errors as `find`.
        """
        everything: _Demand = (lambda: None, THOROUGH)
        self._demands.append(everything)
        try:
            return await self.find(found)
        finally:
            if self._running is None:
                self._demands.remove(everything)
            else:
                self._running.add_done_callback(lambda _done: self._demands.remove(everything))

    async def find_all(self, *, waits: bool = True) -> None:
        """Search for all agents once.

        Args:
            waits: Whether to search again, without a time limit, while all agents have reached their limit on sessions.

        Raises:
            RelayDebugError: as in `find`; NoListener is the usual end.
        """
        while True:
            try:
                await self.find(lambda: None)
            except TooManySessions:  # the search has logged it
                if not waits:
                    raise
                await asyncio.sleep(RETRY_DELAYS[-1])

    async def wait_for(
        self,
        found: Callable[[], T | None],
        on_waiting: Callable[[RelayDebugError], None],
        describe: Callable[[RelayDebugError], str] = str,
    ) -> T:
        """Search repeatedly, without a time limit, until `found` returns a result, and return it.

        Args:
            found: Returns the result, or None.
            on_waiting: Called with the reason for waiting, each time `describe` returns another text for it.
            describe: Returns what the user is shown, which may contain more than the reason, such as other targets.

        Raises:
            RelayDebugError: waiting cannot help.
        """
        last_reported = ""
        for delay in itertools.chain(RETRY_DELAYS, itertools.repeat(RETRY_DELAYS[-1])):
            try:
                return await self.find(found)
            except RelayDebugError as error:
                if not error.retryable:
                    raise
                if (text := describe(error)) != last_reported:
                    on_waiting(error)
                    last_reported = text
            if (result := found()) is not None:
                return result
            await first_completed(self.changed.wait(), timeout=delay)
        raise AssertionError("unreachable")

    def start(self) -> None:
        """Search for all agents once, in the background, at least `START_INTERVAL` after the last such search.

        This search does not join a search that is already running: a probe in the running search may be waiting for a
        listener that was killed, or may have been answered before the wanted agent started listening.
        """
        now = asyncio.get_running_loop().time()
        if now < self._started_at:
            return  # a search is already scheduled
        self._started_at = max(now, self._started_at + START_INTERVAL)
        self._tasks.spawn(self._search_apart(self._started_at - now), name="look for agents once")

    async def repeat(self, roster: Roster) -> NoReturn:
        """Search for all agents now, and again at intervals, until cancelled; log why no agent is found.

        Args:
            roster: The agents that were found.
        """
        now = asyncio.get_running_loop().time
        schedule = SearchSchedule(random.random, now())
        effort, removed = THOROUGH, roster.removed
        reported = NO_AGENT  # the command itself has reported that it found no agent
        while True:
            if roster.removed != removed:
                reported, removed = "", roster.removed
            try:
                await self.find(lambda: None, effort)
            except RelayDebugError as error:
                logger.debug("searched for agents: %s", error)
                # If the last agent was removed in the meantime, the error may date from before: "no other agent".
                if not len(roster) and roster.removed == removed:
                    reported = _report(error, reported)
            effort = BACKGROUND
            schedule.searched(now())
            while (left := schedule.remaining(roster.reachable, now())) > 0:
                await first_completed(self.changed.wait(), timeout=left)

    async def _search_apart(self, delay: float) -> None:
        await asyncio.sleep(delay)
        error = await self._discovery.search(lambda: BACKGROUND)
        logger.debug("searched for agents: %s", error)

    def _join_search(self) -> asyncio.Task[RelayDebugError | None]:
        if self._running is None or self._running.done():
            self._running = self._tasks.spawn(self._discovery.search(self._wanted), name="look for agents")
        return self._running

    def _wanted(self) -> SearchEffort | None:
        """Return the highest effort of all unmet demands, or None if there are none."""
        return max((effort for found, effort in self._demands if found() is None), default=None)


def _report(error: RelayDebugError, reported: str) -> str:
    """Log why no agent was found, unless the last reported reason was of the same kind, and return the kind.

    Args:
        error: Why the search has ended.
        reported: The kind of the reason that was reported last.
    """
    is_absent = isinstance(error, (NoListener, HybridConnectionNotFound))
    kind = NO_AGENT if is_absent else type(error).__name__
    if kind != reported and is_absent:
        logger.info("%s; waiting for a job", error.sentence)
    elif kind != reported:
        prefix = "cannot reach the relay: " if isinstance(error, RelayUnreachable) else ""
        logger.warning("%s%s; trying again", prefix, error.sentence)
    return kind
