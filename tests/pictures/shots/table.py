"""The table that relay-client keeps on a terminal."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

from tests.pictures.scripts import one_stopped_one_crashed
from tests.pictures.stage import PORTS, Stage
from tests.pictures.terminal import write_terminal
from tests.support.machine.screen import client_on, screen
from tests.support.network.relay import HC

__all__ = ["table"]

COLUMNS, LINES = 116, 10


async def table(stage: Stage) -> None:
    """Four ranks on two nodes: one is stopped by an editor, and one is held at an exception."""
    async with screen(COLUMNS, LINES) as (shown, descriptor):

        @contextlib.asynccontextmanager
        async def client() -> AsyncIterator[None]:
            os.write(descriptor, f"$ relay-client --hc {HC} --ports {PORTS}\n".encode())
            async with client_on(descriptor, stage.client_environment(), "--hc", HC, "--ports", PORTS):
                await shown.until("ready on")
                yield

        async with one_stopped_one_crashed(stage, client()):
            for part in ("rank 2 on node-1 crashed", "stopped at", "crashed:"):
                await shown.when(lambda part=part: any(part in line for line in shown.lines), awaited=part)
            await write_terminal("table", shown)
