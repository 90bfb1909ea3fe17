"""The search for agents, shared by all callers that wait for an agent or a target; changes wake them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, Protocol, TypeVar

from relay_client.agents.discovery import SearchEffort
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import RelayDebugError
from relay_core.net.tasks import TaskSet, first_completed

__all__ = ["BACKGROUND", "RETRY_DELAYS", "THOROUGH", "AgentSearch"]

RETRY_DELAYS = (0.5, 1.0, 2.0, 3.0, 5.0)
"""Seconds between searches while somebody waits for an agent; the last one repeats."""
BACKGROUND_INTERVAL = 30.0
"""Seconds between searches while nobody waits, varied at random by 20 % so that many clients do not synchronise."""
START_INTERVAL = 0.2
"""Minimum seconds between two searches that are started because an agent was missed."""
THOROUGH = SearchEffort(8)
"""Rounds while somebody waits; see `relay_client.agents.discovery`."""
BACKGROUND = SearchEffort(1)
"""Rounds while nobody waits; few, because the search is repeated anyway."""

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Searching(Protocol):
    """Searches a hybrid connection or a family once, as `Discovery.search` and `FamilyDiscovery.search` do."""

    async def search(self, wanted: Callable[[], SearchEffort | None]) -> RelayDebugError | None:
        """Search until `wanted` returns None or no agents are left; return why the search ended early, or None."""


class AgentSearch:
    """Finds agents for callers that wait for a target, a port or any agent.

    Args:
        discovery: Finds agents.
        tasks: Owns the running search.
    """

    def __init__(self, discovery: Searching, tasks: TaskSet) -> None:
        self._discovery = discovery
        self._tasks = tasks
        self._running: asyncio.Task[RelayDebugError | None] | None = None
        self._started_at = -START_INTERVAL
        """When the last search of `start` began, or will begin, in the loop's time."""
        self._demands: list[_Demand] = []
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<AgentSearch {self._discovery!r} waiting={len(self._demands)}>"

    @property
    def changed(self) -> asyncio.Event:
        """Set when an agent is next found, lost, reached again or removed, or changes its announcement."""
        return self._changed

    def announce_change(self) -> None:
        """Wake everyone who waits; each checks whether the change concerns it."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def find(self, found: Callable[[], T | None], effort: SearchEffort = THOROUGH) -> T:
        """Search for agents until `found` returns a result, and return it.

        Raises:
            NoListener: there are no more agents.
            RelayDebugError: any other reason why the search ended.
        """
        demand = _Demand(found, effort)
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

    async def wait_for(self, found: Callable[[], T | None], on_waiting: Callable[[RelayDebugError], None]) -> T:
        """Search repeatedly, without a time limit, until `found` returns a result, and return it.

        Args:
            found: Returns the result, or None.
            on_waiting: Called with each new reason for waiting.

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
                if str(error) != last_reported:
                    on_waiting(error)
                    last_reported = str(error)
            if (result := found()) is not None:
                return result
            with contextlib.suppress(*TIMEOUT_ERRORS):
                async with timeout(delay):
                    await self.changed.wait()
        raise AssertionError("unreachable")

    def start(self) -> None:
        """Search for all agents once, in the background, `START_INTERVAL` after the last such search at the earliest.

        It does not join a search that is running: one of its probes may wait for a listener that was killed, or have
        been answered before the agent that is wanted began to listen.
        """
        now = asyncio.get_running_loop().time()
        if now < self._started_at:
            return  # one is scheduled
        self._started_at = max(now, self._started_at + START_INTERVAL)
        self._tasks.spawn(self._search_apart(self._started_at - now), name="look for agents once")

    async def repeat(self) -> NoReturn:
        """Search for all agents now, and again at intervals, until cancelled."""
        effort = THOROUGH
        while True:
            try:
                await self.find(lambda: None, effort)
            except RelayDebugError as error:
                logger.debug("searched for agents: %s", error)
            effort = BACKGROUND
            await asyncio.sleep(BACKGROUND_INTERVAL * random.uniform(0.8, 1.2))  # noqa: S311 - spreads load

    async def _search_apart(self, delay: float) -> None:
        await asyncio.sleep(delay)
        error = await self._discovery.search(lambda: BACKGROUND)
        logger.debug("searched for agents: %s", error)

    def _join_search(self) -> asyncio.Task[RelayDebugError | None]:
        if self._running is None or self._running.done():
            self._running = self._tasks.spawn(self._discovery.search(self._wanted), name="look for agents")
        return self._running

    def _wanted(self) -> SearchEffort | None:
        """Return the highest effort of all unmet demands, or None."""
        wanted = [demand.effort for demand in self._demands if demand.found() is None]
        return max(wanted, key=lambda effort: effort.rounds, default=None)


@dataclass(eq=False)
class _Demand:
    """One caller that waits for a result."""

    found: Callable[[], object]
    effort: SearchEffort
