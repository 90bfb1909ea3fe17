"""Facts about searches for agents: those that begin because an agent was missed, and what repeated ones report."""

import asyncio
from collections.abc import Callable

import pytest

from relay_client.agents.discovery import SearchEffort
from relay_client.agents.roster import Roster
from relay_client.agents.search import START_INTERVAL, THOROUGH, AgentSearch
from relay_core.agent_api.announcement import AgentId, AgentInfo
from relay_core.errors import NoListener, RelayDebugError
from relay_core.net.tasks import TaskSet
from tests.support.machine.deadline import DEADLINE


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
        begun = asyncio.get_running_loop().time()
        for _ in range(5):
            search.start()
        second = [await asyncio.wait_for(searches.times.get(), DEADLINE) for _ in range(2)][1]
        assert second - begun >= START_INTERVAL - 0.01
        assert searches.times.empty()
        search.start()
        assert await asyncio.wait_for(searches.times.get(), DEADLINE) - begun >= 2 * START_INTERVAL - 0.01


class Finding:
    """Stands for a Discovery that finds one agent and can be ended."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.ended = asyncio.Event()
        self.wanted: Callable[[], SearchEffort | None] = lambda: None
        self.announce: Callable[[], None] = lambda: None

    async def search(self, wanted: Callable[[], SearchEffort | None]) -> RelayDebugError | None:
        """Find an agent at once, and end when the test wants it."""
        self.wanted = wanted
        self.found.append("a")
        self.announce()
        await self.ended.wait()
        return NoListener("no other agent")


async def test_first_agent() -> None:
    """Whoever waits for one agent has it as soon as it is found, and the search continues until it has ended."""
    discovery = Finding()
    async with TaskSet() as tasks:
        search = AgentSearch(discovery, tasks)
        discovery.announce = search.announce_change
        first = await asyncio.wait_for(search.find_first(lambda: next(iter(discovery.found), None)), DEADLINE)
        assert ("a", THOROUGH) == (first, discovery.wanted())
        discovery.ended.set()
        with pytest.raises(NoListener):
            await asyncio.wait_for(search.find_all(), DEADLINE)
        assert discovery.wanted() is None


class Leaving:
    """Stands for a Discovery whose only agent leaves when its first search has ended, before the caller knows."""

    def __init__(self, roster: Roster) -> None:
        self.roster = roster
        self.texts = iter(["no other agent is listening on 'myhc'", "no agent is listening on 'myhc'"])
        self.searched = asyncio.Event()
        """Set when the outcome of both searches has been dealt with."""
        roster.put(AgentInfo(AgentId("a"), "node-0"), 0.0)

    async def search(self, wanted: Callable[[], SearchEffort | None]) -> RelayDebugError | None:
        """Return the reasons in turn."""
        asyncio.get_running_loop().call_soon(self.roster.remove, AgentId("a"))
        if (text := next(self.texts, None)) is None:
            self.searched.set()
            await asyncio.Event().wait()
        return NoListener(str(text))


async def test_agent_that_leaves_at_the_end_of_a_search(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log states what a search finds after the agent has left, not what the search before it has found."""
    monkeypatch.setattr("relay_client.agents.search.SHORT", 0.01)
    caplog.set_level("INFO")
    roster = Roster()
    searches = Leaving(roster)
    async with TaskSet() as tasks:
        tasks.spawn(AgentSearch(searches, tasks).repeat(roster), name="search")
        await asyncio.wait_for(searches.searched.wait(), DEADLINE)
    assert ["no agent is listening on 'myhc'; waiting for a job"] == caplog.messages


class Nothing:
    """Stands for a Discovery that finds nothing, always for the same reason."""

    async def search(self, _wanted: Callable[[], SearchEffort | None]) -> RelayDebugError | None:
        """Return the reason."""
        return NoListener("no other agent")


async def test_reasons_for_waiting() -> None:
    """A waiting caller receives a reason again only if what it shows for that reason has changed."""
    shown: list[str] = []
    registered = iter(["rank 0", "rank 0", "ranks 0-1", "ranks 0-1", "rank 1"])
    current = ""

    def describe(why: RelayDebugError) -> str:
        nonlocal current
        asyncio.get_running_loop().call_soon(search.announce_change)
        current = next(registered, "")
        return f"{why.sentence}; registered: {current}"

    async with TaskSet() as tasks:
        search = AgentSearch(Nothing(), tasks)
        waiting = search.wait_for(lambda: current == "rank 1" or None, lambda _why: shown.append(current), describe)
        assert await asyncio.wait_for(waiting, DEADLINE)
    assert ["rank 0", "ranks 0-1", "rank 1"] == shown
