"""Facts about waiting for the exit of a process."""

import asyncio
import os
import sys
from types import ModuleType

import pytest

from relay_agent.node.in_agent import other_process
from relay_agent.node.in_agent.other_process import until_exit


@pytest.fixture(params=["pidfd", "polling"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pidfd, and by polling, as on systems without it."""
    if request.param == "polling":
        without = ModuleType("os")  # for this module only: since Python 3.12, asyncio needs the function
        vars(without).update({name: value for name, value in vars(os).items() if name != "pidfd_open"})
        monkeypatch.setattr(other_process, "os", without)
        monkeypatch.setattr(other_process, "POLL_INTERVAL", 0.01)


@pytest.mark.usefixtures("_way")
async def test_the_end_of_a_process_is_noticed() -> None:
    """Waiting lasts as long as the process."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE)
    waiting = asyncio.create_task(until_exit(process.pid))
    await asyncio.sleep(0)
    assert not waiting.done()
    process.stdin.close()
    await process.wait()
    await waiting


@pytest.mark.usefixtures("_way")
async def test_a_process_that_has_ended_before() -> None:
    """A process that has exited is not waited for."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await process.wait()
    await until_exit(process.pid)
