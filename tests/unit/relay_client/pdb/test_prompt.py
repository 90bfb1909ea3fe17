"""Facts about the end of the prompt."""

import asyncio

from tests.support.jobs.processes import job
from tests.support.machine.deadline import DEADLINE

INTERRUPTED = """
import asyncio, contextlib, os, signal
from relay_client.pdb.prompt import run_pdb

async def last_task():
    try:
        await asyncio.Event().wait()
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

@contextlib.asynccontextmanager
async def connection():
    task = asyncio.create_task(last_task())
    await asyncio.sleep(0)
    raise ConnectionError
    yield

print(run_pdb(connection()))
"""


async def test_sigterm_while_the_loop_is_stopped() -> None:
    """The program exits even if a task of the loop does not end."""
    async with job(INTERRUPTED) as running:
        assert (0, ["0"]) == (await asyncio.wait_for(running.finish(), DEADLINE))[:2]
