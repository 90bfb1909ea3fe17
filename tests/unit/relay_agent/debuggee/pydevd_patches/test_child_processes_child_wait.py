"""Facts about a child process that is announced to an editor which does not attach to it: the child runs."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from relay_client.dap import DapClient
from tests.support.jobs.processes import Job, job
from tests.support.machine.deadline import DEADLINE

PARENT = """
    import multiprocessing, subprocess, threading
    from relay_agent.debuggee.debugger import debugger
    sys.path.insert(0, sys.argv[1])
    import child
    print(debugger.arm(follow_children=True), flush=True)
    debugger.wait_for_attach(3600, threading.Event())
    if sys.argv[2] == "exec":
        process = subprocess.Popen([sys.executable, child.__file__])
        print(process.pid, flush=True)
        print(process.wait(), flush=True)
    else:
        process = multiprocessing.get_context(sys.argv[2]).Process(target=child.work)
        process.start()
        print(process.pid, flush=True)
        process.join()
        print(process.exitcode, flush=True)
    sys.stdin.readline()
"""
CHILD = """\
import time
from pathlib import Path

def work():
    print("the child runs", flush=True)
    while not Path(__file__).with_name("end").exists():
        time.sleep(0.01)
    raise SystemExit(7)

if __name__ == "__main__":
    work()
"""
IN_LOOP = CHILD.splitlines().index("        time.sleep(0.01)") + 1
in_every_way = pytest.mark.parametrize("method", ["fork", "spawn", "exec"])


@contextlib.asynccontextmanager
async def announced(
    directory: Path, method: str, **variables: str
) -> AsyncIterator[tuple[Job, DapClient, dict[str, Any]]]:
    """Yield a job, its debugger, and the announcement of a child that the debugger has received."""
    (directory / "child.py").write_text(CHILD)
    async with job(PARENT, str(directory), method, **variables) as running:
        port = int(await running.line())
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            await client.attach({}, within=DEADLINE)
            pid = int(await running.line())
            event = await client.wait_for_event(
                "debugpyAttach", matching=lambda child: child["subProcessId"] == pid, within=DEADLINE
            )
            yield running, client, event["body"]


async def end(running: Job, directory: Path) -> str:
    """Let a child that runs end, and then its parent; return what the job has written to stderr."""
    (directory / "end").touch()
    assert "7" == await running.line()
    return (await running.finish())[2]


@in_every_way
async def test_editor_that_does_not_attach(tmp_path: Path, method: str) -> None:
    """After the limit the child runs, although its parent's editor is still there, which can attach to it now, too."""
    async with announced(tmp_path, method, DEBUGPY_PROCESS_SPAWN_TIMEOUT="1") as (running, client, child):
        assert "the child runs" == await running.line()
        async with await DapClient.connect("127.0.0.1", child["connect"]["port"], within=DEADLINE) as session:
            breakpoints = {str(tmp_path / "child.py"): [{"line": IN_LOOP}]}
            await session.attach(breakpoints, within=DEADLINE, subProcessId=child["subProcessId"])
            await session.wait_for_event("stopped", within=DEADLINE)
            await session.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        await client.close()
        stderr = await end(running, tmp_path)
    assert "no debugger attached within 1 s; continuing\n" in stderr


@in_every_way
async def test_editor_that_leaves(tmp_path: Path, method: str) -> None:
    """The child runs soon after the editor has left, and the next editor can attach to its parent."""
    async with announced(tmp_path, method, DEBUGPY_PROCESS_SPAWN_TIMEOUT="3600") as (running, client, child):
        await client.close()
        assert "the child runs" == await running.line()
        async with await DapClient.connect("127.0.0.1", child["connect"]["port"], within=DEADLINE) as again:
            await again.attach({}, within=DEADLINE)
        stderr = await end(running, tmp_path)
    assert "the debugger disconnected before it attached to this process; continuing\n" in stderr


@in_every_way
async def test_adapter_that_ends(tmp_path: Path, method: str) -> None:
    """The child runs as soon as its connection to debugpy's adapter has ended."""
    async with announced(tmp_path, method, DEBUGPY_PROCESS_SPAWN_TIMEOUT="3600") as (running, _, child):
        listeners = [found for found in psutil.net_connections("tcp") if found.status == psutil.CONN_LISTEN]
        (adapter,) = {found.pid for found in listeners if found.laddr.port == child["connect"]["port"]}
        psutil.Process(adapter).kill()
        assert "the child runs" == await running.line()
        await end(running, tmp_path)
