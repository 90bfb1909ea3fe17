"""What the programs need: time from their start until they say that they are ready, and memory of their own (USS)."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import AsyncIterator

import psutil

from relay_client.demo.process import Child
from tests.bench.programs import Held, holding, lines_of, python_json
from tests.bench.report import Row
from tests.bench.stage import Stage
from tests.support.ports import free_port

__all__ = ["footprint"]

MIB = 1024 * 1024
CONNECTIONS = 50
"""Below the 64 that a session takes."""
IMPORT = "import time; t = time.perf_counter(); import relay_agent; print(time.perf_counter() - t)"


async def footprint(stage: Stage, *, quick: bool) -> list[Row]:
    """Agent and client of their own."""
    logical = free_port()
    starts = []
    for turn in range(3 if quick else 7):
        started = time.monotonic()
        agent = await stage.begin_agent({logical: stage.target_port})
        await lines_of(agent, lambda text: "listening on" in text)
        starts.append(time.monotonic() - started)
        if turn < (2 if quick else 6):
            await stage.programs.end(agent)
    imports = [await python_json("-c", IMPORT) for _ in range(3 if quick else 7)]
    alone = memory(agent)
    client = await stage.start_client(str(logical))
    with_session = {"agent": memory(agent), "client": memory(client)}
    async with holding(logical, CONNECTIONS) as held:
        busy = {"agent": memory(agent), "client": memory(client)}
    rows = [
        Row("start", "relay-agent until it listens, median", "ms", {"agent": 1000 * statistics.median(starts)}),
        Row("start", "import relay_agent in a job, median", "ms", {"job": 1000 * statistics.median(imports)}),
        Row("memory", "agent without a client", "MiB", {"agent": alone / MIB}),
        Row("memory", "with one session", "MiB", {name: size / MIB for name, size in with_session.items()}),
        Row("memory", "threads", "", {name: threads(child) for name, child in (("agent", agent), ("client", client))}),
        Row("memory", "for one more connection", "KiB", _each(held, with_session, busy)),
        Row("memory", "for one more session", "KiB", {"agent": await _session(stage, agent, 2 if quick else 8)}),
    ]
    for child in (client, agent):
        await stage.programs.end(child)
    return rows


def memory(child: Child) -> int:
    """Return the bytes that would be free without this process."""
    return int(psutil.Process(child.pid).memory_full_info().uss)


def threads(child: Child) -> int:
    """Return how many threads it has."""
    return psutil.Process(child.pid).num_threads()


def _each(held: Held, before: dict[str, int], after: dict[str, int]) -> dict[str, float | str]:
    return {name: (after[name] - before[name]) / held.count / 1024 for name in before}


async def _session(stage: Stage, agent: Child, count: int) -> float:
    async with _clients(stage, 1):
        before = memory(agent)
        async with _clients(stage, count):
            return (memory(agent) - before) / count / 1024


@contextlib.asynccontextmanager
async def _clients(stage: Stage, count: int) -> AsyncIterator[None]:
    clients = [await stage.start_client(str(free_port())) for _ in range(count)]
    try:
        yield
    finally:
        for client in clients:
            await stage.programs.end(client)
