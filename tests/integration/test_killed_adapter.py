"""Facts about the next debugger after debugpy's adapter was killed: the real debugpy, in processes of its own."""

import asyncio
import os

import psutil
import pytest

from relay_client.dap import DapClient
from relay_core.errors import ConnectionLost
from tests.support.debuggers.armed import REARMED, adapter, armed
from tests.support.jobs.processes import job
from tests.support.machine.deadline import DEADLINE


async def test_adapter_that_is_killed_at_a_breakpoint(tmp_path):
    """The process runs on, and each further debugger stops at the breakpoint and gets the event."""
    script = tmp_path / "loop.py"
    script.write_text("import time\nnumber = 0\nwhile True:\n    number += 1\n    time.sleep(0.005)\n")
    async with job(armed(REARMED), str(script)) as running:
        for _ in range(3):
            port = int(await running.line())
            async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
                await client.attach({str(script): [{"line": 4}]}, within=DEADLINE)
                assert "breakpoint" == (await client.wait_for_event("stopped", within=DEADLINE))["body"]["reason"]
                await kill_adapter(port, client)
            running.process.stdin.write(b"\n")


async def test_adapter_that_is_killed_during_a_step(tmp_path):
    """The process runs on, does not stop before the next debugger attaches, and then stops at its breakpoint."""
    script, pipe = tmp_path / "loop.py", tmp_path / "pipe"
    loop = "while True:\n    with open(sys.argv[2]) as pipe: pipe.read()\n    print('after', flush=True)\n"
    script.write_text(f"import sys\n{loop}")
    os.mkfifo(pipe)
    async with job(armed(REARMED), str(script), str(pipe)) as running:
        port = int(await running.line())
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            await client.attach({str(script): [{"line": 3}]}, within=DEADLINE)
            await asyncio.to_thread(pipe.write_text, "")
            assert "after" == await running.line()
            stopped = await client.wait_for_event("stopped", within=DEADLINE)
            await client.request("next", {"threadId": stopped["body"]["threadId"]}, within=DEADLINE)
            await kill_adapter(port, client)
        running.process.stdin.write(b"\n")
        port = int(await running.line())
        await asyncio.to_thread(pipe.write_text, "")
        assert "after" == await running.line()
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            await client.attach({str(script): [{"line": 4}]}, within=DEADLINE)
            await asyncio.to_thread(pipe.write_text, "")
            assert "breakpoint" == (await client.wait_for_event("stopped", within=DEADLINE))["body"]["reason"]


RAISING = """\
import sys, threading

def fail():
    with open(sys.argv[2]) as pipe:
        pipe.read()
    raise ValueError(7)

def work():
    fail()

if sys.argv[3] == "main":
    work()
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


@pytest.mark.parametrize("thread", ["main", "other"])
async def test_uncaught_exception_after_the_adapter_was_killed(tmp_path, thread):
    """The next debugger stops at it, in a thread that was already running in front of the first debugger."""
    script, pipe = tmp_path / "raising.py", tmp_path / "pipe"
    script.write_text(RAISING)
    os.mkfifo(pipe)
    async with job(armed(REARMED), str(script), str(pipe), thread) as running:
        port = int(await running.line())
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            await client.attach({}, exceptions=["uncaught"], within=DEADLINE)
            await kill_adapter(port, client)
        running.process.stdin.write(b"\n")
        port = int(await running.line())
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            await client.attach({}, exceptions=["uncaught"], within=DEADLINE)
            await asyncio.to_thread(pipe.write_text, "")
            assert "exception" == (await client.wait_for_event("stopped", within=DEADLINE))["body"]["reason"]


async def kill_adapter(port: int, client: DapClient) -> None:
    psutil.Process(adapter(port)).kill()
    with pytest.raises(ConnectionLost):
        await client.wait_for_event("never", within=DEADLINE)
