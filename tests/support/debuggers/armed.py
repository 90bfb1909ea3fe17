"""Jobs that start a debugger, and the adapters of their debuggers."""

import asyncio
import contextlib
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import psutil

from relay_client.dap import DapClient
from relay_core.compat import timeout
from tests.support.jobs.processes import Job, job
from tests.support.machine.deadline import DEADLINE

ARM = """\
import threading
from relay_agent.debuggee.debugger import debugger
port = debugger.arm()
"""
WAITING = """\
    import runpy
    print(port, flush=True)
    {prepare}
    debugger.wait_for_attach(3600, threading.Event())
    runpy.run_path(sys.argv[1])
"""
REARMED = """\
    import runpy
    def control():
        for _line in sys.stdin:
            debugger.release()
            print(debugger.arm(), flush=True)
    helper = threading.Thread(target=control, daemon=True)
    helper.pydev_do_not_trace = helper.is_pydev_daemon_thread = True
    helper.start()
    print(port, flush=True)
    runpy.run_path(sys.argv[1])
"""
"""Runs a script under a debugger, and starts another one for each line of stdin."""


def armed(code: str) -> str:
    """Return a program that has started a debugger on `port`."""
    return ARM + textwrap.dedent(code)


@contextlib.asynccontextmanager
async def waiting_script(directory: Path, program: str, prepare: str = "") -> AsyncIterator[tuple[Job, int]]:
    """Run a file, in which pydevd stops, unlike in text, once a debugger has attached to the port that is yielded."""
    script = directory / "program.py"
    script.write_text(program)
    async with job(armed(WAITING.format(prepare=prepare)), str(script)) as running:
        yield running, int(await running.line())


@contextlib.asynccontextmanager
async def debugged_script(
    directory: Path, program: str, *lines: int, prepare: str = ""
) -> AsyncIterator[tuple[Job, DapClient]]:
    """Run a file with breakpoints in these lines."""
    script = str(directory / "program.py")
    async with (
        waiting_script(directory, program, prepare) as (running, port),
        await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client,
    ):
        await client.attach({script: [{"line": line} for line in lines]} if lines else {}, within=DEADLINE)
        yield running, client


def adapter(port: int) -> int:
    """Return the process id of the adapter that listens on a port."""
    (pid,) = _listeners(port)
    return pid


async def until_adapter_has_ended(port: int) -> None:
    """Wait until no process listens on a port, without a connection, which the adapter would take for a debugger's."""
    while _listeners(port):
        await asyncio.sleep(0.05)


def _listeners(port: int) -> set[int]:
    sockets = [found for found in psutil.net_connections("tcp") if found.status == psutil.CONN_LISTEN]
    return {found.pid for found in sockets if found.pid and found.laddr and found.laddr.port == port}


async def adapter_ports(port: int) -> list[int]:
    """Return the ports of the process that listens on one port: two, once it has found out whether owners are shown.

    At its first connection, it opens a third one for a moment, and connects to it (`relay_core.socket_tables`).
    """
    process = psutil.Process(adapter(port))
    async with timeout(DEADLINE):
        while len(found := [each.laddr.port for each in process.net_connections("tcp") if not each.raddr]) > 2:
            await asyncio.sleep(0.05)
    return found
