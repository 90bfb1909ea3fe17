"""Facts about the children of a debugged process: none of them waits for a debugger that does not come."""

import asyncio
from pathlib import Path

import pytest

from relay_client.dap import DapClient, RequestFailed
from relay_core.errors import ConnectionLost
from tests.support.editors.follower import Follower
from tests.support.jobs.processes import Job, gone, job
from tests.support.machine.deadline import DEADLINE

POOL = """\
import multiprocessing
import sys
import threading

from relay_agent.debuggee.debugger import debugger

if "pydevd" in sys.modules:  # in a child that is followed, where debugpy warns of modules that have pydevd's names
    import debugpy.server

def work(number):
    return number * number

if __name__ == "__main__":
    method, follow_children, wait = sys.argv[1:]
    port = debugger.arm(follow_children=follow_children == "True")
    print(port, flush=True)
    debugger.wait_for_attach(float(wait), threading.Event())
    with multiprocessing.get_context(method).Pool(2) as pool:
        print(pool.map(work, range(4), chunksize=1), flush=True)
        pool.close()
        pool.join()
"""
LINE = 11
"""In `work`, which only the children run."""
RESULT = "[0, 1, 4, 9]"

RUN = """
import runpy, sys
sys.argv[:] = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def pool(directory: Path, method: str, *, follow_children: bool, wait: float = 3600, **environ: str):
    script = directory / "pool.py"
    script.write_text(POOL)
    return script, job(RUN, str(script), method, str(follow_children), str(wait), **environ)


METHODS = pytest.mark.parametrize("method", ["fork", "spawn"])


@METHODS
async def test_pool_runs_through_a_breakpoint(tmp_path, method):
    """Workers whose code has a breakpoint run to their end while a debugger is attached to their parent."""
    script, starting = pool(tmp_path, method, follow_children=False)
    async with (
        starting as running,
        await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE) as client,
    ):
        await client.attach({str(script): [{"line": LINE}]}, within=DEADLINE)
        assert await running.line() == RESULT
        with pytest.raises((RequestFailed, ConnectionLost)):
            await client.wait_for_event("debugpyAttach", "stopped", within=0)
        assert await finished(running, client) == 0


@METHODS
async def test_pool_without_any_debugger(tmp_path, method):
    """Workers that may be followed run to their end when nobody is attached."""
    _, starting = pool(tmp_path, method, follow_children=True, wait=0)
    async with starting as running:
        await running.line()
        assert await running.line() == RESULT
        assert (await running.finish())[0] == 0


@METHODS
async def test_pool_with_a_debugger_that_follows(tmp_path, method):
    """A debugger that follows children stops in workers; with warnings as errors, they write nothing to stderr."""
    # Python 3.12 warns of every fork of a process that has threads.
    warnings = {"PYTHONWARNINGS": "error,ignore::DeprecationWarning"}
    script, starting = pool(tmp_path, method, follow_children=True, **warnings)
    async with starting as running:
        port = int(await running.line())
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            follower = Follower(script, LINE)
            await client.attach(follower.breakpoints, within=DEADLINE)
            following = asyncio.create_task(follower.follow(client))
            assert await running.line() == RESULT
            await following
            assert await gone(running.pid)
        status, _, errors = await running.finish()
    assert (0, "", 4) == (status, errors, follower.stops)


async def finished(running: Job, client: DapClient) -> int:
    """Wait for the end of a job with a debugger attached to it, and return its status."""
    assert await gone(running.pid)
    await client.close()  # without it debugpy's adapter keeps the job's stdout open
    return (await running.finish())[0]


async def test_forked_child_is_free():
    """A forked child is not traced, does not look armed, and passes a breakpoint() by, whatever its parent does."""
    code = """
        import os, sys, threading
        from relay_agent.debuggee.debugger import debugger
        print(debugger.arm(), flush=True)
        debugger.wait_for_attach(3600, threading.Event())
        if os.fork() == 0:
            breakpoint()
            traced = sys.gettrace(), threading.gettrace()
            if sys.version_info >= (3, 12):
                traced += (sys.monitoring.get_tool(0),)
            print(set(traced), debugger.is_armed(), debugger.is_attached(), flush=True)
            os._exit(0)
        print(os.wait()[1], debugger.is_attached(), flush=True)
    """
    async with (
        job(code) as running,
        await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE) as client,
    ):
        await client.attach({}, within=DEADLINE)
        assert [await running.line(), await running.line()] == ["{None} False False", "0 True"]
        assert await finished(running, client) == 0
