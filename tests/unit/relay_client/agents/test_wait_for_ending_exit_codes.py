"""Facts about what agents announce of the processes of a session of all ranks."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from relay_client.agents import wait_for_ending
from relay_client.agents.roster import Roster
from relay_client.agents.search import AgentSearch
from relay_client.agents.wait_for_ending import ProcessKey, announced_exit_code
from relay_core.agent_api.announcement import AgentInfo, Ending, TargetInfo
from relay_core.net.tasks import TaskSet
from tests.support.machine.deadline import DEADLINE

PORT, PID = 5678, 41
PROCESS: ProcessKey = ("agent", PORT, PID)


class Announced:
    """The part of `Tunnels` that has what agents announce: a real roster, and the real event of its changes."""

    def __init__(self, tasks: TaskSet) -> None:
        self.roster = Roster()
        self.search = AgentSearch(SimpleNamespace(), tasks)  # type: ignore[arg-type] # it never searches

    def put(self, **fields: Any) -> None:
        self.roster.put(AgentInfo("agent", host="node", **fields), 100)
        self.search.announce_change()


def target(pid: int) -> TargetInfo:
    return TargetInfo(PORT, pid=pid)


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        (Ending(PORT, PID, status=0), 0),
        (Ending(PORT, PID, status=3), 3),
        (Ending(PORT, PID, signal=9), 137),
        (Ending(PORT, PID), None),
    ],
)
async def test_ending_that_is_announced_later(ending: Ending, code: int | None) -> None:
    """The status may follow some time after the end of the process, and after that of other processes."""
    async with TaskSet() as tasks:
        tunnels = Announced(tasks)
        tunnels.put(endings=(Ending(PORT, PID, is_final=False), Ending(PORT, PID + 1, status=5)))
        waiting = asyncio.ensure_future(announced_exit_code(tunnels, PROCESS))  # type: ignore[arg-type]
        for _ in range(3):
            await asyncio.sleep(0)
            assert not waiting.done()
        tunnels.put(endings=(ending,))
        assert code == await asyncio.wait_for(waiting, DEADLINE)


@pytest.mark.parametrize(("pid", "is_running"), [(PID, True), (PID + 1, False)])
async def test_process_that_is_running(pid: int, is_running: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is still announced is not waited for; one that has been restarted on its port is another one."""
    monkeypatch.setattr(wait_for_ending, "CODE_PATIENCE", 3600.0 if is_running else 0.05)
    async with TaskSet() as tasks:
        tunnels = Announced(tasks)
        tunnels.put(targets=(target(pid),), endings=())
        assert await asyncio.wait_for(announced_exit_code(tunnels, PROCESS), DEADLINE) is None  # type: ignore[arg-type]


async def test_agent_that_disappears() -> None:
    """The end of the agent ends the wait."""
    async with TaskSet() as tasks:
        tunnels = Announced(tasks)
        tunnels.put(endings=())
        waiting = asyncio.ensure_future(announced_exit_code(tunnels, PROCESS))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        tunnels.roster.remove("agent")
        tunnels.search.announce_change()
        assert await asyncio.wait_for(waiting, DEADLINE) is None
