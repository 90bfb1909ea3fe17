"""Facts about child processes: they are followed if the editor that is attached wants that, and only then."""

import asyncio
from pathlib import Path

import pytest

from relay_client.dap import DapClient
from relay_core.net.tasks import cancel_and_wait
from tests.support.editors.follower import Follower
from tests.support.jobs.processes import Job, gone, job
from tests.support.machine.deadline import DEADLINE

POOLS = """\
import multiprocessing
import sys
import threading

from relay_agent.debuggee.debugger import debugger

if "pydevd" in sys.modules:  # a child that is followed: debugpy warns of foreign modules with pydevd's names
    import debugpy.server

def work(number):
    return number * number

def has_debugger(_number):
    return "pydevd" in sys.modules and sys.modules["pydevd"].get_global_debugger() is not None

if __name__ == "__main__":
    method = sys.argv[1]
    print(debugger.arm(), flush=True)
    debugger.wait_for_attach(3600, threading.Event())
    for task in work, has_debugger:
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(pool.map(task, range(4), chunksize=1), flush=True)
            pool.close()
            pool.join()
        print("joined", flush=True)
        sys.stdin.readline()
"""
LINE = 11
"""In `work`, which only the children run."""
PARENT = """\
import subprocess
import sys
import threading

if sys.argv[1] == "child":
    print(7 * 7, flush=True)
else:
    from relay_agent.debuggee.debugger import debugger
    print(debugger.arm(), flush=True)
    debugger.wait_for_attach(3600, threading.Event())
    subprocess.run([sys.executable, __file__, "child"], check=True)
    print("ended", flush=True)
    sys.stdin.readline()
"""
LINE_OF_CHILD = 6
RUN = """
import runpy, sys
sys.argv[:] = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
METHODS = pytest.mark.parametrize("method", ["fork", "spawn"])


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "pools.py"
    path.write_text(POOLS)
    return path


async def follow_until(follower: Follower, client: DapClient, running: Job, *lines: str) -> None:
    """Follow the children until the job has printed these lines, and leave."""
    following = asyncio.create_task(follower.follow(client))
    assert [await running.line() for _ in lines] == list(lines)
    await cancel_and_wait(following)
    await follower.leave()
    await client.request("disconnect", within=DEADLINE)


@METHODS
async def test_an_editor_that_follows_stops_in_children(script: Path, method: str) -> None:
    """With `subProcess`, each worker is offered and stops; after the session, workers have no debugger at all."""
    async with job(RUN, str(script), method) as running:
        port = int(await running.line())
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            follower = Follower(script, LINE)
            await client.attach(follower.breakpoints, within=DEADLINE, subProcess=True)
            await follow_until(follower, client, running, "[0, 1, 4, 9]", "joined")
        assert 4 == follower.stops
        running.process.stdin.write(b"\n")
        assert await running.line() == "[False, False, False, False]"
        status, _, errors = await running.finish()
        assert (0, "") == (status, errors)
        assert await gone(running.pid)


async def test_an_editor_continues_a_script_that_the_job_starts(tmp_path: Path) -> None:
    """A child whose program is a file stops at its breakpoint, continues, and ends."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    async with job(RUN, str(script), "parent") as running:
        port = int(await running.line())
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            follower = Follower(script, LINE_OF_CHILD)
            await client.attach({}, within=DEADLINE, subProcess=True)
            await follow_until(follower, client, running, "49", "ended")
        assert 1 == follower.stops
        status, _, errors = await running.finish()
        assert (0, "") == (status, errors)


@METHODS
@pytest.mark.parametrize("arguments", [{}, {"subProcess": False}])
async def test_an_editor_that_does_not_follow_has_no_children(
    script: Path, method: str, arguments: dict[str, bool]
) -> None:
    """Without `subProcess`, workers run through the breakpoint and are not offered."""
    async with job(RUN, str(script), method) as running:
        port = int(await running.line())
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            await client.attach({str(script): [{"line": LINE}]}, within=DEADLINE, **arguments)
            assert await running.line() == "[0, 1, 4, 9]"
            assert await running.line() == "joined"
            running.process.stdin.write(b"\n")
            assert await running.line() == "[False, False, False, False]"
            await client.request("disconnect", within=DEADLINE)
        assert (await running.finish())[0] == 0
