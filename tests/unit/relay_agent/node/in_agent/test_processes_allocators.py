"""Facts about asking the processes of a node for the numbers of torch's allocator."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from relay_agent.monitor.readings import AllocatorReading
from relay_agent.node.in_agent import processes
from relay_agent.node.in_agent.processes import Allocators
from relay_core.agent_api.usage import AllocatorUsage
from relay_core.net.tasks import TaskSet
from tests.support.machine.deadline import DEADLINE

NUMBERS = AllocatorReading(AllocatorUsage(6, 8, 7, 2, 1))


class Rank:
    """A process that answers when the test wants it."""

    def __init__(self, port: int, found: AllocatorReading | None = NUMBERS) -> None:
        self.logical_port = port
        self.requests = 0
        self.can_answer = asyncio.Event()
        self._found = found

    async def allocator(self) -> AllocatorReading | None:
        self.requests += 1
        await self.can_answer.wait()
        return self._found


@pytest.fixture
async def tasks() -> AsyncIterator[TaskSet]:
    """End the tasks that are still waiting at the end of a test."""
    async with TaskSet() as tasks:
        yield tasks


async def test_answers(tasks: TaskSet) -> None:
    """The numbers are found by port; a process without numbers has none."""
    ranks = [Rank(5678), Rank(5679, None)]
    for rank in ranks:
        rank.can_answer.set()
    allocators = Allocators(lambda: ranks, tasks)
    assert {5678: NUMBERS} == await allocators.read()
    assert {5678: NUMBERS} == await allocators.read()
    assert [2, 2] == [rank.requests for rank in ranks]


async def test_a_rank_that_does_not_answer(tasks: TaskSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """It delays one sample, and no later one; it is asked again once it has answered."""
    stuck, other = Rank(5678), Rank(5679)
    other.can_answer.set()
    monkeypatch.setattr(processes, "ALLOCATOR_TIMEOUT", 0.01)
    allocators = Allocators(lambda: [stuck, other], tasks)
    assert {5679: NUMBERS} == await allocators.read()
    assert 1 == len(tasks)
    monkeypatch.setattr(processes, "ALLOCATOR_TIMEOUT", 3600)
    assert {5679: NUMBERS} == await asyncio.wait_for(allocators.read(), DEADLINE)
    assert 1 == stuck.requests
    stuck.can_answer.set()
    while len(tasks):
        await asyncio.sleep(0)
    assert {5678: NUMBERS, 5679: NUMBERS} == await allocators.read()
    assert 2 == stuck.requests


async def test_no_process(tasks: TaskSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node without processes has no numbers, and `read` does not wait."""
    monkeypatch.setattr(processes, "ALLOCATOR_TIMEOUT", 3600)
    allocators = Allocators(list, tasks)
    assert {} == await asyncio.wait_for(allocators.read(), DEADLINE)


@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_failed_question(tasks: TaskSet, is_closed: bool) -> None:
    """A process that fails or is cut off has no numbers, and the others are not affected."""

    class Broken(Rank):
        async def allocator(self) -> AllocatorReading | None:
            raise asyncio.CancelledError if is_closed else OSError

    good = Rank(5679)
    good.can_answer.set()
    allocators = Allocators(lambda: [Broken(5678), good], tasks)
    assert {5679: NUMBERS} == await allocators.read()
