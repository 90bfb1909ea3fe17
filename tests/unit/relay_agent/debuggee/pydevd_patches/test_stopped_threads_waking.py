"""Facts about how pydevd wakes the threads that it has stopped."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from relay_client.dap import DapClient
from tests.support.debuggers.armed import debugged_script
from tests.support.machine.deadline import DEADLINE

PATIENT = 'sys.modules["pydevd"].TIMEOUT_SLOW = 3600'
"""A thread that is not woken stays."""
WORKERS = """
import threading
import time

steps = [0] * 4

def work(number):
    while True:
        steps[number] += 1
        time.sleep(0.001)

def see_all_at_work():
    before = list(steps)
    while any(then == now for then, now in zip(before, steps)):
        time.sleep(0.001)

for number in range(4):
    threading.Thread(target=work, args=[number], daemon=True).start()
breakpoint()
while True:
    see_all_at_work()
"""
ALONE = "breakpoint()\nprint('it stops before this line')\n"


@contextlib.asynccontextmanager
async def debugged(directory: Path, code: str) -> AsyncIterator[DapClient]:
    """Debug a program whose threads stop until they are woken."""
    async with debugged_script(directory, code, prepare=PATIENT) as (_, client):
        yield client


async def stopped(client: DapClient) -> dict[str, int]:
    return {"threadId": (await client.wait_for_event("stopped", within=DEADLINE))["body"]["threadId"]}


async def test_step_and_continue_wake_every_thread(tmp_path: Path):
    """The line is over when all other threads have run on, each of which was stopped."""
    async with debugged(tmp_path, WORKERS) as client:
        thread = await stopped(client)
        for _ in range(10):
            await client.request("next", thread, within=DEADLINE)
            assert thread == await stopped(client)
        await client.request("continue", thread, within=DEADLINE)
        await client.request("pause", thread, within=DEADLINE)
        await stopped(client)


async def test_commands_that_come_together(tmp_path: Path):
    """A stopped thread carries out all of them, one by one, and waits after the last."""
    async with debugged(tmp_path, ALONE) as client:
        thread = await stopped(client)
        frame = (await client.request("stackTrace", thread, within=DEADLINE))["stackFrames"][0]["id"]
        for _ in range(5):
            asked = [
                client.request("evaluate", {"expression": "1", "frameId": frame}, within=DEADLINE) for _ in range(9)
            ]
            assert ["1"] * 9 == [answer["result"] for answer in await asyncio.gather(*asked)]
