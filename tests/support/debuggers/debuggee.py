"""A real program under debugpy, stopped at a breakpoint through a tunnel."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from relay_client.dap import DapClient
from tests.support.editors.stopped import Stopped
from tests.support.jobs.processes import Job, job
from tests.support.machine.deadline import DEADLINE

PROGRAM = """\
def count(total):
    number = 0
    while number < total:
        number += 1
        square = number * number
        double = number + number
    return number

print(count(1000000), flush=True)
"""
LINE = 5
"""Of `square = ...`, where the breakpoint is."""

_LISTEN = """
import runpy, sys, threading, debugpy
host, port = debugpy.listen(("127.0.0.1", 0))
import pydevd, socket
pydevd.get_global_debugger().writer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
print(port, flush=True)
debugpy.wait_for_client()
"""
_START = f"{_LISTEN}runpy.run_path(sys.argv[1])"
_START_THREAD = f"{_LISTEN}threading.Thread(target=runpy.run_path, args=[sys.argv[1]]).start()"


def debuggee(directory: Path, program: str = PROGRAM) -> AbstractAsyncContextManager[tuple[Job, int, Path]]:
    """Run a program until it waits for a debugger; yields the job, debugpy's port and the script."""
    return _debuggee(directory, _START, program)


def debuggee_in_thread(directory: Path) -> AbstractAsyncContextManager[tuple[Job, int, Path]]:
    """The same, in a thread: only the program's frames are the user's, so the stack is the same at each stop.

    debugpy gives a frame without a file, such as that of the code that starts the program, a new source each time.
    """
    return _debuggee(directory, _START_THREAD, PROGRAM)


@contextlib.asynccontextmanager
async def _debuggee(directory: Path, start: str, program: str) -> AsyncIterator[tuple[Job, int, Path]]:
    script = directory / "counting.py"
    script.write_text(program)
    async with job(start, str(script), PYDEVD_DISABLE_FILE_VALIDATION="1") as running:
        yield running, int(await running.line()), script


@contextlib.asynccontextmanager
async def stopped_at_breakpoint(port: int, script: Path) -> AsyncIterator[Stopped]:
    """Attach through 127.0.0.1:`port` and wait until `number` is 7 at the breakpoint."""
    async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
        await client.attach({str(script): [{"line": LINE, "condition": "number == 7"}]}, within=DEADLINE)
        session = Stopped(client)
        await session.until_stopped()
        assert await session.value("number") == "7"
        yield session
        with contextlib.suppress(asyncio.TimeoutError):
            await client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
