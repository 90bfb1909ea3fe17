"""Facts about a job whose signal handler raises an exception while the job is stopped at a breakpoint."""

import os
import signal
from pathlib import Path

import pytest

from tests.support.debuggers.armed import debugged_script
from tests.support.machine.deadline import DEADLINE

pytestmark = pytest.mark.skipif(os.name != "posix", reason="other systems have no SIGALRM")

PROGRAM = """\
import signal
import threading
import time

ticks = 0

def tick():
    global ticks
    while True:
        ticks += 1
        time.sleep(0.001)

def too_late(*_):
    raise TimeoutError("too late")

def train(step):
    square = step * step
    return square

signal.signal(signal.SIGALRM, too_late)
threading.Thread(target=tick, daemon=True).start()
for step in range(10**9):
    try:
        train(step)
        time.sleep(0.001)
    except (TimeoutError, KeyboardInterrupt) as error:
        print(type(error).__name__, flush=True)
        before = ticks
        while ticks == before:
            time.sleep(0.001)
"""
BREAKPOINT = 17
"""The line of `square = ...`."""


async def test_the_job_and_the_debugger_continue(tmp_path: Path) -> None:
    """The job's code gets the exception, all threads continue, and the debugger stops in the main thread as before."""
    script = tmp_path / "program.py"
    async with debugged_script(tmp_path, PROGRAM, BREAKPOINT) as (running, client):
        for number, caught in ((signal.SIGALRM, "TimeoutError"), (signal.SIGINT, "KeyboardInterrupt")):
            await client.wait_for_event("stopped", within=DEADLINE)
            os.kill(running.pid, number)
            assert caught == await running.line()
            await client.wait_for_event("continued", within=DEADLINE)
        thread = {"threadId": (await client.wait_for_event("stopped", within=DEADLINE))["body"]["threadId"]}
        await client.request("setBreakpoints", {"source": {"path": str(script)}, "breakpoints": []}, within=DEADLINE)
        await client.request("continue", thread, within=DEADLINE)
        await client.request("pause", thread, within=DEADLINE)
        await client.wait_for_event("stopped", within=DEADLINE)
