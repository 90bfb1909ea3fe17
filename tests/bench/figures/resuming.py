"""What a cut costs: the client's way to the relay leads through a proxy that ends its connections.

How long: the longest of the messages of `load ping` around each cut. What is lost: `load check` sends random bytes to
and fro on three connections, and compares, while cuts come at random moments. The other ways lose their connections.
(`make soak` does the same ten thousand times.)
"""

from __future__ import annotations

import asyncio
import random
import time

from tests.bench.programs import load
from tests.bench.report import Row, median_ms
from tests.bench.stage import Stage
from tests.support.machine.ports import free_port
from tests.support.network.chaos import ChaosProxy

__all__ = ["resuming"]

BETWEEN_CUTS = 2.0
"""Seconds; a resume is over long before."""


async def resuming(stage: Stage, *, quick: bool) -> list[Row]:
    """One client with one agent."""
    logical = free_port()
    agent = await stage.start_agent({logical: stage.target_port})
    async with ChaosProxy("127.0.0.1", stage.relay.port) as proxy:
        file = stage.relay.connection_file_by(proxy.port, "client")
        client = await stage.start_client(str(logical), file)
        gaps = await _gaps(proxy, logical, 3 if quick else 12)
        pause = 2.0 if stage.delays else 0.3
        cuts, carried, wrong = await _check(proxy, logical, 6.0 if quick else 60.0, pause)
        for child in (client, agent):
            await stage.programs.end(child)
    lost = {"ssh -L": "lost", "rendezvous": "lost"}
    return [
        Row("a cut connection", "until the next answer: median", "ms", {"tunnel": median_ms(gaps), **lost}),
        Row("a cut connection", "until the next answer: worst", "ms", {"tunnel": 1000 * max(gaps), **lost}),
        Row("a cut connection", f"bytes lost or doubled in {carried} over {cuts} cuts", "bytes", {"tunnel": wrong}),
    ]


async def _gaps(proxy: ChaosProxy, port: int, cuts: int) -> list[float]:
    pinging = asyncio.ensure_future(load("ping", port, "--seconds", (cuts + 1) * BETWEEN_CUTS))
    times = []
    await asyncio.sleep(BETWEEN_CUTS / 2)
    for _ in range(cuts):
        await asyncio.sleep(BETWEEN_CUTS)
        times.append(time.monotonic())
        proxy.cut()
    result = await pinging
    messages = list(zip(result["sent_at"], result["latencies"], strict=True))
    return [
        max(latency for sent, latency in messages if sent < cut + BETWEEN_CUTS / 2 and sent + latency > cut)
        for cut in times
    ]


async def _check(proxy: ChaosProxy, port: int, seconds: float, pause: float) -> tuple[int, int, int]:
    """Return how many cuts there were, the bytes that came back right, and those that did not.

    On average `pause` seconds lie between two cuts; a path that is cut before it is up again carries nothing.
    """
    chance = random.Random(7)
    checks = asyncio.gather(*(load("check", port, "--seconds", seconds, "--seed", seed) for seed in range(3)))
    cuts = 0
    while not checks.done():
        await asyncio.sleep(chance.uniform(0.5 * pause, 1.5 * pause))
        cuts += bool(proxy.cut(reset=chance.random() < 0.5))
    results = await checks
    return cuts, sum(result["bytes"] for result in results), sum(result["wrong"] for result in results)
