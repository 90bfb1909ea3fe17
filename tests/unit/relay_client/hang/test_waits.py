"""Facts about the ranks that wait in a collective operation, from what their processes have answered."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from relay_client.hang import waits
from relay_client.hang.reports import Job, RankReport
from relay_client.hang.verdict import JobVerdict
from relay_client.hang.waits import Waits, may_wait, waits_of
from relay_core.agent_api.announcement import AgentId, AgentInfo
from relay_core.agent_api.collectives import GroupRecord, Operation, ProcessCollectives, Progress
from relay_core.foreign import MAX_TEXT
from relay_core.net.tasks import TaskSet
from tests.support.machine.deadline import DEADLINE


def report(rank: int, begun: int, name: str = "all_reduce", completed: int = 5) -> RankReport:
    """Return the report of one of three ranks that has begun and completed so many operations."""
    operations = tuple(Operation(number, name, age=12.0) for number in range(1, begun + 1))
    record = GroupRecord("0", "default_pg", "other", (0, 1, 2), begun, completed, operations)
    return RankReport(rank, collectives=ProcessCollectives(rank, (record,)))


def test_who_may_wait() -> None:
    """Ranks may wait if one has begun more operations of a group; groups have numbers of their own."""
    assert not may_wait({0: Progress(), 1: Progress()})
    assert not may_wait({0: Progress({"0 0-1": 5, "1 0": 7}), 1: Progress({"0 0-1": 5})})
    assert may_wait({0: Progress({"0 0-1": 5}), 1: Progress({"0 0-1": 6})})


def test_state_of_waiting_ranks() -> None:
    """The ranks that wait have the operation and the missing rank as their state, by their port."""
    found = {rank: report(rank, begun) for rank, begun in enumerate((6, 5, 6))}
    wait = "in all_reduce, waiting for rank 1"
    assert {5678: wait, 5680: wait} == dict(waits_of(JobVerdict.of(Job(5678, found))))


def test_a_rank_that_waits_in_the_next_operation() -> None:
    """A rank that has completed an operation without the missing rank waits for it, too; with no later one, it runs."""
    found = {0: report(0, 6, "broadcast"), 1: report(1, 5), 2: report(2, 7, "broadcast", completed=6)}
    wait = "in broadcast, waiting for rank 1"
    assert {5678: wait, 5680: wait} == dict(waits_of(JobVerdict.of(Job(5678, found))))
    found[2] = report(2, 6, "broadcast", completed=6)
    assert {5678: wait} == dict(waits_of(JobVerdict.of(Job(5678, found))))


def test_name_from_the_job() -> None:
    """The name of an operation, which comes from the job, is shown as printable text of limited length."""
    found = {rank: report(rank, begun, "all\n\x1b[31m" + "x" * 100_000) for rank, begun in enumerate((6, 5, 6))}
    (text,) = {*dict(waits_of(JobVerdict.of(Job(5678, found)))).values()}
    assert text.isprintable()
    assert len(text) == MAX_TEXT


async def test_new_agents_are_asked_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents that become known one by one are asked together, at once instead of at the next interval."""
    monkeypatch.setattr(waits, "IDLE_INTERVAL", 2 * DEADLINE)
    search, agents = SimpleNamespace(changed=asyncio.Event()), list[AgentInfo]()
    tunnels: Any = SimpleNamespace(roster=agents, search=search)
    looks = asyncio.Queue[tuple[bool, int]]()

    class Counted(Waits):
        async def look(self, *, is_only: bool = False) -> None:
            looks.put_nowait((is_only, len(agents)))

    async with TaskSet() as tasks:
        tasks.spawn(Counted(tunnels).keep(), name="keep")
        assert (False, 0) == await looks.get()
        for number in range(2):
            agents.append(AgentInfo(AgentId(f"{number}")))
            search.changed.set()
            search.changed = asyncio.Event()
            await asyncio.sleep(0)
        assert (True, 2) == await asyncio.wait_for(looks.get(), DEADLINE)
