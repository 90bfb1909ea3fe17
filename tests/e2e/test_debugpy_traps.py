"""Facts about what breaks a debugpy behind a plain port forward, all the way from relay-client's port to a job."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from relay_client.dap import DapClient, RequestFailed
from tests.support.debuggers.debuggee import LINE, PROGRAM, stopped_at_breakpoint
from tests.support.editors.follower import Follower
from tests.support.editors.listening import listening_editor
from tests.support.jobs.running import access, running_client, running_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import run
from tests.support.network.relay import HC, LocalRelay

pytestmark = pytest.mark.e2e

STRANGERS = [
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\x00\xc4\x01\x00\x00\xc0\x03\x03",  # the beginning of a TLS hello
    b"SSH-2.0-OpenSSH_9.6\r\n",
]
HALF_A_MESSAGE = b'Content-Length: 119\r\n\r\n{"seq": 1, "type": "request", "comm'


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A program that counts."""
    path = tmp_path / "counting.py"
    path.write_text(PROGRAM)
    return path


# Who comes to the port:


async def test_strangers_leave_the_debugger_usable(relay: LocalRelay, script: Path) -> None:
    """After 50 connections that are dropped at once, HTTP, TLS, ssh and half a message, F5 attaches and steps."""
    port = free_port()
    async with (
        running_job(relay, script, "--port", str(port)) as job,
        running_client(relay, script.parent, "--ports", str(port)),
    ):
        await job.line("listening on 'myhc'")
        await asyncio.gather(*(drop_at_once(port) for _ in range(25)))
        for _ in range(25):
            await drop_at_once(port)
        for data in STRANGERS:
            assert b"" == await answer_to(port, data)
        await drop_at_once(port, HALF_A_MESSAGE)
        async with stopped_at_breakpoint(port, script) as session:
            assert LINE + 1 == await session.step()


async def drop_at_once(port: int, data: bytes = b"") -> None:
    """Connect, and leave without waiting for anything."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def answer_to(port: int, data: bytes) -> bytes:
    """Send some bytes, and return what comes back up to the end; a reset counts as the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    answer = b""
    with contextlib.suppress(ConnectionError):
        answer = await asyncio.wait_for(reader.read(), DEADLINE)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return answer


# The size of messages:


async def test_large_values(relay: LocalRelay, script: Path) -> None:
    """A value of 5 MB arrives whole; one that debugpy cannot carry is an error, and stepping continues after it."""
    port = free_port()
    async with (
        running_job(relay, script, "--port", str(port)),
        running_client(relay, script.parent, "--ports", str(port)),
        stopped_at_breakpoint(port, script) as session,
    ):
        assert 5_000_000 == (await session.value("'x' * 5_000_000", "clipboard")).count("x")
        with pytest.raises(RequestFailed, match="20,?000,?[0-9]+ bytes"):
            await session.value("'x' * 20_000_000", "clipboard")
        assert LINE + 1 == await session.step()


# What the job starts:

POOL = """\
import multiprocessing
import sys

def work(number):
    return number * number

if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        print(pool.map(work, range(4), chunksize=1), flush=True)
        pool.close()
        pool.join()
"""
IN_WORK = 5
"""A line that only the children run."""
RESULT = "[0, 1, 4, 9]\n"
METHODS = pytest.mark.parametrize("method", ["fork", "spawn"])


@METHODS
async def test_pool_that_nobody_follows(relay: LocalRelay, tmp_path: Path, method: str) -> None:
    """A pool ends as usual while only its parent has a debugger: breakpoints in its workers cause no event."""
    script, port = write_pool(tmp_path), free_port()
    async with (
        running_job(relay, script, "--port", str(port), arguments=[method]) as job,
        running_client(relay, tmp_path, "--ports", str(port)),
        await DapClient.connect("127.0.0.1", port, within=DEADLINE) as parent,
    ):
        await parent.attach({str(script): [{"line": IN_WORK}]}, within=DEADLINE)
        event = await parent.wait_for_event("stopped", "debugpyAttach", "terminated", within=DEADLINE)
        assert "terminated" == event["event"]
        await parent.close()
        finished = await job.finish()
        assert (0, RESULT) == (finished.status, finished.stdout)


@METHODS
async def test_pool_that_an_editor_follows(relay: LocalRelay, tmp_path: Path, method: str) -> None:
    """With --follow-children an editor is sent to the port that it knows, once for each worker, and stops in them.

    Neither the job nor a worker prints a warning, of pydevd's plugins for instance.
    """
    script, port = write_pool(tmp_path), free_port()
    async with (
        running_job(relay, script, "--port", str(port), "--follow-children", arguments=[method]) as job,
        running_client(relay, tmp_path, "--ports", str(port)),
        await DapClient.connect("127.0.0.1", port, within=DEADLINE) as parent,
    ):
        follower = Follower(script, IN_WORK)
        # VS Code sends what launch.json contains, and debugpy returns it for each child.
        await parent.attach(follower.breakpoints, within=DEADLINE, connect={"host": "127.0.0.1", "port": port})
        await follower.follow(parent)
        await parent.close()
        finished = await job.finish()
        assert (0, RESULT) == (finished.status, finished.stdout)
    assert [] == [line for line in finished.stderr.splitlines() if not line.startswith("relay-agent")]
    assert {port} == follower.ports
    assert 4 == follower.stops


@METHODS
async def test_pool_beside_pdb(relay: LocalRelay, tmp_path: Path, method: str) -> None:
    """A debugger that looks at one process lets the workers run that --follow-children offers it."""
    script, port = write_pool(tmp_path), free_port()
    async with running_job(relay, script, "--port", str(port), "--follow-children", arguments=[method]) as job:
        command = ("--hc", HC, "pdb", "--rank", "0")
        seen = await run("relay_client", *command, env=access(relay, tmp_path, "send"), stdin=b"c\n")
        finished = await job.finish()
        assert (0, RESULT, 0) == (finished.status, finished.stdout, seen.status)


def write_pool(directory: Path) -> Path:
    path = directory / "pool.py"
    path.write_text(POOL)
    return path


@METHODS
async def test_pool_of_a_listening_editor(relay: LocalRelay, tmp_path: Path, method: str) -> None:
    """Workers of a job that has connected to a listening editor are debugged through the same connection."""
    script, port = write_pool(tmp_path), free_port()
    async with (
        running_job(relay, script, "--port", str(port), "--follow-children", arguments=[method]) as job,
        listening_editor(port, script, IN_WORK) as editor,
        running_client(relay, tmp_path, "--ports", str(port)),
    ):
        await editor.attached
        follower = Follower(script, IN_WORK)
        await follower.follow(editor.client)
        finished = await job.finish()
        assert (0, RESULT) == (finished.status, finished.stdout)
    assert 4 == follower.stops
