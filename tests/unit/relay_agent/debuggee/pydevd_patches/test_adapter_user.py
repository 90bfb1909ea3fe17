"""Facts about child processes that the debugger follows and that do not reach debugpy's adapter."""

import asyncio
import socket

import psutil
import pytest

from relay_agent.debuggee.pydevd_patches.adapter_user import _until_accepted
from tests.support.jobs.processes import Job, gone, job, run_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.other_user import listening_stranger, needs_owners, needs_queries, needs_second_user

PARENT = """
    import multiprocessing, os, subprocess, threading
    from pathlib import Path
    from relay_agent.debuggee.debugger import debugger, pydevd_debugger

    def work():
        print("the child runs", flush=True)
        os._exit(7)

    def start(method):
        if method == "fork":
            child = multiprocessing.get_context("fork").Process(target=work)
            child.start()
            child.join()
            return child.exitcode
        options = [sys.executable, "-c", "import os; print('the child runs', flush=True); os._exit(7)"]
        if method == "file":
            options[1:] = [sys.argv[3]]
        return subprocess.call(options)

    debugger.arm(follow_children=True)
    import pydevd
    if sys.argv[2] == "another port":
        pydevd.SetupHolder.setup["port"] = int(sys.argv[4])
    print(pydevd.SetupHolder.setup["port"], flush=True)
    sys.stdin.readline()
    while sys.argv[2] == "no adapter" and pydevd_debugger() is not None:
        pass
    print(start(sys.argv[1]), flush=True)
    print(*(os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.exists()), flush=True)
"""
CHILD = "import os\nprint('the child runs', flush=True)\nos._exit(7)\n"
in_every_way = pytest.mark.parametrize("method", ["fork", "file", "code"])


@pytest.fixture
def child(tmp_path):
    path = tmp_path / "child.py"
    path.write_text(CHILD)
    return str(path)


async def child_runs(running: Job) -> str:
    """Let the job start its child, which must run to its own end, and return what both have written to stderr."""
    status, printed, stderr = await running.finish()
    assert (0, ["the child runs", "7"]) == (status, printed[:2])
    assert "netlink" not in printed[2]
    assert "/net/tcp" not in printed[2]
    return stderr


@needs_queries
async def test_sockets_of_the_machine_are_not_listed():
    """A job whose adapter accepts the connection has not read the table of all sockets, which may be long."""
    code = """
        sys.addaudithook(lambda event, args: event == "open" and "/net/tcp" in str(args[0]) and print(args[0]))
        from relay_agent.debuggee.debugger import debugger
        from relay_agent.debuggee.pydevd_patches import adapter_user
        adapter_user.LISTENER_AFTER = 3600
        print(debugger.arm() > 0)
    """
    assert (0, ["True"], "") == await run_job(code)


@needs_owners
def test_adapter_that_has_not_accepted_yet():
    """A connection is used as soon as only a process of this user can accept it."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as connection,
    ):
        _until_accepted(connection)


@in_every_way
@needs_owners
@needs_second_user
async def test_another_user_in_place_of_the_adapter(child: str, method: str) -> None:
    """A child that reaches another user's program neither reads nor writes a byte, and runs without a debugger."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    async with listening_stranger(port) as stranger, job(PARENT, method, "another port", child, str(port)) as running:
        assert str(port) == await running.line()
        stderr = await child_runs(running)
        assert b"accepted \n" == await asyncio.wait_for(stranger.readline(), DEADLINE)
    assert "another user's program has accepted the connection; continuing without a debugger\n" in stderr


@in_every_way
async def test_nobody_in_place_of_the_adapter(child: str, method: str) -> None:
    """A child that cannot connect to the adapter runs without a debugger."""
    with socket.socket() as bound:  # refuses whoever connects
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        async with job(PARENT, method, "another port", child, str(port)) as running:
            assert str(port) == await running.line()
            assert "continuing without a debugger\n" in await child_runs(running)


@in_every_way
@needs_second_user
async def test_a_job_forgets_the_port_of_an_adapter_that_has_exited(child: str, method: str) -> None:
    """After a job has noticed that its adapter was killed, its children do not connect to the adapter's port."""
    async with job(PARENT, method, "no adapter", child) as running:
        port = int(await running.line())
        (adapter,) = {
            found.pid
            for found in psutil.net_connections("tcp")
            if found.status == psutil.CONN_LISTEN and found.laddr.port == port
        }
        psutil.Process(adapter).kill()
        assert await gone(adapter)
        async with listening_stranger(port) as stranger:
            await child_runs(running)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(stranger.readline(), 0.1)
