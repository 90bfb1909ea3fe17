"""`relay-client hang` on a job in which one rank is missing in an all_reduce."""

from __future__ import annotations

import asyncio
import os

from relay_core.compat import timeout
from tests.pictures.scripts import HANGING
from tests.pictures.stage import Stage
from tests.pictures.terminal import write_terminal
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.programs import run
from tests.support.machine.screen import client_on, screen
from tests.support.network.relay import HC

__all__ = ["hang"]

MISSING = "in read_heights"
"""Where rank 2 is."""
COLUMNS = 93
"""The lines then end between words."""


async def hang(stage: Stage) -> None:
    """Three ranks wait in an all_reduce for rank 2, which waits for a file."""
    environment = stage.client_environment()
    async with stage.job(HANGING, "--debug-ranks", "none"), screen(COLUMNS) as (shown, descriptor):
        async with timeout(DEADLINE):
            while MISSING not in (await run("relay_client", "--hc", HC, "hang", env=environment)).stdout:
                await asyncio.sleep(0.1)
        os.write(descriptor, f"$ relay-client --hc {HC} hang\n".encode())
        async with client_on(descriptor, environment, "--hc", HC, "hang") as client:
            await client.wait()
        await shown.until(MISSING)
        await write_terminal("hang", shown)
