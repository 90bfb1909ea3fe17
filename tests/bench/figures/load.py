"""How relay-server bears load, by connections of the older way: two WebSockets for each (`load hold`, `load bulk`).

Idle connections are opened one by one, so the rate is that of one client. Meanwhile, 64 pairs of other programs
exchange small messages, as they did before there were idle connections. The pairs of streams then share the relay's
process, which uses one core. Their time includes opening them.
"""

from __future__ import annotations

import asyncio

from tests.bench.figures.footprint import MIB, memory
from tests.bench.programs import Usage, holding
from tests.bench.programs import load as generate
from tests.bench.report import Row, median_ms, percentile
from tests.bench.stage import Stage, Way

__all__ = ["load"]

PAIRS = (1, 8, 64)
BUSY = 64
CPU = "CPU of the relay for a round trip"
PAUSE = 0.1
"""Seconds between an answer and the next message of a busy pair."""


async def load(stage: Stage, *, quick: bool) -> list[Row]:
    """Idle connections first, then throughput."""
    seconds = 5 if quick else 20
    return [*await _idle(stage, 250 if quick else 2500, seconds), *await _pairs(stage, 16 if quick else 128)]


async def _idle(stage: Stage, pairs: int, seconds: int) -> list[Row]:
    way = (await stage.ways("rendezvous"))["rendezvous"]
    busy = (await stage.ways_to(stage.target_port, "rendezvous"))["rendezvous"]
    without = await _busy(busy, seconds)
    before = {name: memory(child) for name, child in way.children.items()}
    usage = Usage(way.children)
    async with holding(way.port, pairs) as held:
        cpu = usage.seconds()
        after = {name: memory(child) for name, child in way.children.items()}
        beside = await _busy(busy, seconds)
        usage = Usage(way.children)
        await asyncio.sleep(seconds)
        resting = usage.seconds()
    sockets = {name: held.count * (2 if name == "relay" else 1) for name in before}
    each = {name: (after[name] - before[name]) / sockets[name] / 1024 for name in before}
    what = f"{2 * pairs} idle connections of the relay"
    return [
        Row(what, "memory for a connection", "KiB", {**each}),
        Row(what, "memory with all of them", "MiB", {name: size / MIB for name, size in after.items()}),
        Row(what, "opened per second, two each", "", {"client": held.count / held.seconds}),
        Row(what, "CPU for each opening, two connections", "ms", {n: 1000 * cpu[n] / held.count for n in cpu}),
        Row(what, "CPU while nothing is sent", "%", {n: 100 * resting[n] / seconds for n in resting}),
        *(
            Row(f"{BUSY} busy pairs", name, unit, {"alone": without[name], f"beside {what}": beside[name]})
            for name, unit in {"round trip, median": "ms", "round trip, 99th percentile": "ms", CPU: "us"}.items()
        ),
    ]


async def _busy(way: Way, seconds: int) -> dict[str, float]:
    """Let some pairs exchange small messages, and return what a round trip takes."""
    usage = Usage({"relay": way.children["relay"]})
    found = await generate("ping", way.port, "--connections", BUSY, "--interval", PAUSE, "--seconds", seconds)
    latencies = found["latencies"]
    return {
        "round trip, median": median_ms(latencies),
        "round trip, 99th percentile": 1000 * percentile(latencies, 99),
        CPU: 1e6 * usage.seconds()["relay"] / len(latencies),
    }


async def _pairs(stage: Stage, mib: int) -> list[Row]:
    way = (await stage.ways("rendezvous"))["rendezvous"]
    rows = []
    for direction in ("up", "down"):
        rates = {}
        for pairs in PAIRS:
            arguments = ("--mib", mib, "--connections", pairs, "--direction", direction)
            rates[f"{pairs} pairs" if pairs > 1 else "1 pair"] = (
                mib / (await generate("bulk", way.port, *arguments))["seconds"]
            )
        rows.append(Row("pairs of streams", f"total throughput, {direction}load", "MiB/s", {**rates}))
    return rows
