"""Facts about searches for agents that begin because an agent was missed."""

import asyncio
from collections.abc import Callable

from relay_client.agents.discovery import SearchEffort
from relay_client.agents.search import START_INTERVAL, AgentSearch
from relay_core.net.tasks import TaskSet


class Searches:
    """Stands for a Discovery that finds nothing, and notes when it is asked."""

    def __init__(self) -> None:
        self.times: asyncio.Queue[float] = asyncio.Queue()

    async def search(self, wanted: Callable[[], SearchEffort | None]) -> None:
        """Note the time."""
        assert wanted() is not None
        self.times.put_nowait(asyncio.get_running_loop().time())


async def test_agent_that_is_missed_again_at_once() -> None:
    """A second search begins when `START_INTERVAL` has passed: the first one may have come too early."""
    searches = Searches()
    async with TaskSet() as tasks:
        search = AgentSearch(searches, tasks)
        for _ in range(5):
            search.start()
        first, second = [await asyncio.wait_for(searches.times.get(), 20) for _ in range(2)]
        assert second - first >= START_INTERVAL - 0.01
        assert searches.times.empty()
        search.start()
        assert await asyncio.wait_for(searches.times.get(), 20) - second >= START_INTERVAL - 0.01
