"""Time from the last statement of a job until its process has ended, while the editor stays connected.

A job under `relay-agent run` and one under debugpy alone take turns. The first one's agent delivers the last events and
closes its sessions before the job's process ends, because a container ends with its last process.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
import time
from pathlib import Path

from relay_client.dap import DapClient
from relay_client.demo.environment import Child
from relay_core.errors import ConnectionLost
from tests.bench.report import Row
from tests.bench.stage import HC, Stage
from tests.support.machine.ports import free_port

__all__ = ["ending"]

WITHIN = 60.0
"""Seconds for any one thing that a job or its debugger does."""


async def ending(stage: Stage, *, quick: bool) -> list[Row]:
    """Run the same short job both ways."""
    script = stage.programs.directory / "short_job.py"
    last_statement = stage.programs.directory / "last_statement"
    script.write_text(
        f"import pathlib, time\npathlib.Path({str(last_statement)!r}).write_text(str(time.monotonic()))\n"
    )
    times: dict[str, list[float]] = {"debugpy alone": [], "relay-agent run": []}
    port = free_port()
    client = await stage.start_client(str(port))
    for _ in range(3 if quick else 10):
        alone = free_port()
        command = ["--listen", str(alone), "--wait-for-client", str(script)]
        times["debugpy alone"].append(
            await _ending(await stage.programs.python("job", "debugpy", *command), alone, last_statement)
        )
        access = ["--connection-string-file", stage.relay.connection_file("agent"), "--ca-file", stage.relay.ca_file]
        command = ["run", "--hc", HC, *access, "--port", str(port), "--", sys.executable, str(script)]
        times["relay-agent run"].append(
            await _ending(await stage.programs.python("job", "relay_agent", *command), port, last_statement)
        )
    await stage.programs.end(client)
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    return [Row("a job ends while its editor stays", "median", "s", medians, detail={"seconds": times})]


async def _ending(job: Child, port: int, last_statement: Path) -> float:
    """Return how long a job takes to end after its last statement, which has written the system's monotonic time."""
    async with await _attached(port):
        await job.wait(within=WITHIN)
        return time.monotonic() - float(last_statement.read_text())  # noqa: ASYNC240 - nothing else runs now


async def _attached(port: int) -> DapClient:
    """Attach to a port as soon as debugpy listens there; its adapter may close a connection that comes too early."""
    deadline = time.monotonic() + WITHIN
    while True:
        with contextlib.suppress(ConnectionLost):
            editor = await DapClient.connect("127.0.0.1", port)
            try:
                await editor.attach({}, within=WITHIN)
            except BaseException:
                await editor.close()
                raise
            return editor
        if time.monotonic() > deadline:
            raise RuntimeError(f"nothing to attach to on port {port}")
        await asyncio.sleep(0.05)
