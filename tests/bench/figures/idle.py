"""What relay-client needs for 1,000 ranks of a job in which nothing changes.

The ranks belong to 125 agents with eight ranks each, which share one process; their hybrid connections are a family of
five. The client has a local port for each of the first 200 ranks. Its CPU time is measured when the minute in which
further agents are expected is over.
"""

from __future__ import annotations

import asyncio
import statistics
import time

from tests.bench.figures.capacity import free_range
from tests.bench.figures.families import PER_HC, PORTS, RANKS, start_job, until_found
from tests.bench.figures.footprint import MIB, memory
from tests.bench.programs import Usage
from tests.bench.report import Row
from tests.bench.stage import Stage

__all__ = ["idle"]

SIZE = 5
SETTLING = 65.0
"""Seconds until relay-client searches for agents less often (`relay_client.agents.search`)."""
HOUR = 3600


async def idle(stage: Stage, *, quick: bool) -> list[Row]:
    """One hybrid connection with 25 agents if quick."""
    size = 1 if quick else SIZE
    count = size * PER_HC
    first = free_range(PORTS)
    own, agents, _ = await start_job(stage, size, first)
    client, _ = await until_found(own, count, f"{first}-{first + PORTS - 1}")
    await asyncio.sleep(SETTLING)
    usage, seconds = Usage({"client": client}), 10 if quick else 60
    await asyncio.sleep(seconds)
    used = usage.seconds()["client"]
    usage, times = Usage({"client": client}), []
    for _ in range(5):
        started = time.monotonic()
        status = await stage.programs.python("status", "relay_client", "status", "--client", str(client.pid))
        assert not await status.wait(within=60), status.output()
        times.append(time.monotonic() - started)
    answers = usage.seconds()["client"] / len(times)
    what = f"{count * RANKS} ranks of {count} agents, nothing changes"
    rows = [
        Row(what, "CPU time in an hour", "s", {"client": used * HOUR / seconds}),
        Row(what, "memory", "MiB", {"client": memory(client) / MIB}),
        Row(what, "`relay-client status`, median", "ms", {"client": 1000 * statistics.median(times)}),
        Row(what, "CPU time for its answer", "ms", {"client": 1000 * answers}),
    ]
    for child in (client, agents, own.relay.child):
        await stage.programs.end(child)
    return rows
