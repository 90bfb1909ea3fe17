"""Facts about `continue` in a job whose threads stop again and again."""

import asyncio
from pathlib import Path

from tests.support.debuggers.armed import debugged_script
from tests.support.machine.deadline import DEADLINE

PROGRAM = """\
import threading
import time

def work():
    number = 0
    while True:
        number += 1
        square = number * number
        time.sleep(0.001)

for _ in range(6):
    threading.Thread(target=work, daemon=True).start()
while True:
    time.sleep(0.01)
"""
BREAKPOINT = 8
"""The line of `square = ...`."""
STOPS = 100
"""With pydevd alone the debugger is usually silent after 10 to 60 of them."""


async def test_pressing_continue_twice(tmp_path: Path):
    """Each `continue` is answered, also one that is sent while the threads resume, and each stop is reported."""
    async with debugged_script(tmp_path, PROGRAM, BREAKPOINT) as (_, client):
        for _ in range(STOPS):
            thread = {"threadId": (await client.wait_for_event("stopped", within=DEADLINE))["body"]["threadId"]}
            await asyncio.gather(*(client.request("continue", thread, within=DEADLINE) for _ in range(2)))


async def test_continue_of_a_running_job(tmp_path: Path):
    """A `continue` is answered at once if nothing is stopped, and the debugger continues to answer."""
    async with debugged_script(tmp_path, PROGRAM) as (_, client):
        await client.request("continue", {"threadId": 1}, within=DEADLINE)
        assert (await client.request("threads", {}, within=DEADLINE))["threads"]
