"""Facts about the status of a process that is not a child: a grandchild, whose shell collects it sooner or later."""

import asyncio
import os
import platform
import sys

import pytest

from relay_agent.node.in_agent import other_process as module
from relay_agent.node.in_agent.other_process import ProcessExit, parse_stat
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.programs import communicate


@pytest.fixture(params=["kept by the system", "before Linux 6.15"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "before Linux 6.15":
        monkeypatch.setattr(module, "_kept_status", lambda _descriptor: None)


async def exit_status(pid: int, within: float = DEADLINE) -> int | None:
    with ProcessExit(pid) as process:
        return await process.status(within=within)


async def grandchild(code: str, *, collected: bool) -> tuple[asyncio.subprocess.Process, int]:
    """Start a program under a shell that collects its status, or does so only when its own stdin ends."""
    script = f'{sys.executable} -c "$1" & echo $!; {"wait" if collected else "read line; wait"}'
    shell = await asyncio.create_subprocess_exec(
        "sh", "-c", script, "sh", code, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    return shell, int(await shell.stdout.readline())


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize(
    ("code", "status"),
    [("input()", 1), ("import sys; sys.exit(3)", 3), ("", 0), ("import os; os.kill(os.getpid(), 9)", -9)],
)
async def test_the_status_of_a_process_that_nobody_has_collected(code: str, status: int) -> None:
    """Exit status or signal are known as long as the parent has not collected them."""
    shell, pid = await grandchild(code, collected=False)
    found = await exit_status(pid)
    assert found is not None
    assert status == os.waitstatus_to_exitcode(found)
    await communicate(shell, b"\n")


@pytest.mark.skipif(
    tuple(map(int, platform.release().split(".")[:2])) < (6, 15), reason="this Linux does not keep the status"
)
async def test_the_status_survives_the_parents_wait() -> None:
    """From Linux 6.15 on, the status is known after the parent has collected it."""
    shell, pid = await grandchild("import time; time.sleep(0.5); raise SystemExit(3)", collected=True)
    found = await exit_status(pid)
    assert found is not None
    assert 3 == os.waitstatus_to_exitcode(found)
    await communicate(shell, b"\n")


@pytest.mark.usefixtures("_way")
async def test_a_process_that_continues_has_no_status() -> None:
    """After the time limit the answer is None."""
    assert await exit_status(os.getpid(), within=0.05) is None


async def test_a_process_that_is_gone_has_no_status() -> None:
    """A process that ended long ago is not waited for."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await process.wait()
    assert await exit_status(process.pid) is None


def test_the_name_of_a_process_may_contain_anything() -> None:
    """Fields are counted from the end of the name, which may contain spaces and brackets."""
    numbers = " ".join(str(number) for number in range(4, 52))
    assert ("Z", 768) == parse_stat(f"17 (a) b) Z {numbers} 768\n")
    with pytest.raises(ValueError, match="too few fields"):
        parse_stat("17 (python) Z 1 2")
