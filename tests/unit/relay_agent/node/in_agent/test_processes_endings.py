"""Facts about the endings that an agent announces."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from relay_agent.node.in_agent.processes import MAX_ENDINGS, Endings
from relay_agent.node.in_agent.registered_process import RegisteredProcess
from relay_core.agent_api.announcement import AgentId, AgentInfo, Ending, fit
from tests.support.jobs.node_process import connection

FAILED, SUCCEEDED, KILLED = 1 << 8, 0, 9
"""Wait statuses."""


@pytest.fixture
async def process() -> AsyncIterator[RegisteredProcess]:
    """A process with port 5678."""
    async with connection() as (writer, _):
        yield RegisteredProcess(writer, 1, {"register": {"port": 5678}})


async def test_the_ending_that_an_editor_needs_is_announced() -> None:
    """If a thousand processes end at once, the ending of the one with a debugger is in the next announcement."""
    endings = Endings()
    async with connection() as (writer, _):
        for number in range(1000):
            process = RegisteredProcess(writer, number, {"register": {"port": 10_000 + number}})
            process.was_debugged = number == 3
            endings.ended(process, KILLED)
    found = endings.announced()
    assert MAX_ENDINGS == len(found)
    announced = AgentInfo.parse(fit(AgentInfo(AgentId("1a2b"), endings=found), 400)[0]).endings
    assert announced is not None
    assert [10_993, 10_994, 10_995, 10_996, 10_997, 10_998, 10_999, 10_003] == [each.port for each in announced]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (FAILED, Ending(5678, 1, status=1, error="ValueError")),
        (SUCCEEDED, Ending(5678, 1, status=0)),
        (KILLED, Ending(5678, 1, signal=9)),
        (None, Ending(5678, 1, error="ValueError")),
    ],
)
async def test_only_a_failure_has_an_exception(
    process: RegisteredProcess, status: int | None, expected: Ending
) -> None:
    """A process that has not succeeded ended with the exception that it reported before; others ended without one."""
    endings = Endings()
    endings.exiting(process, "ValueError")
    assert (Ending(5678, 1, error="ValueError", is_final=False),) == endings.announced()
    endings.ended(process, status)
    assert (expected,) == endings.announced()


async def test_the_name_of_a_rank(process: RegisteredProcess) -> None:
    """The announcement names the rank that has ended, because only its agent knows it then."""
    process.info = replace(process.info, rank=3)
    endings = Endings()
    endings.ended(process, KILLED)
    assert (Ending(5678, 1, signal=9, rank=3),) == endings.announced()


async def test_an_exception_belongs_to_one_process(process: RegisteredProcess) -> None:
    """A process that fails does not end with the exception of the former process with its port."""
    endings = Endings()
    endings.exiting(process, "ValueError")
    process.pid = 2
    endings.ended(process, FAILED)
    assert (Ending(5678, 2, status=1),) == endings.announced()


async def test_a_process_that_registers_again_has_not_ended(process: RegisteredProcess) -> None:
    """The ending of a process is removed when the program that has replaced it registers; another one remains."""
    endings = Endings()
    endings.replaced(process, "python")
    process.pid = 2
    endings.registered(process)
    assert (Ending(5678, 1, replaced_by="python"),) == endings.announced()
    process.pid = 1
    endings.registered(process)
    assert () == endings.announced()
