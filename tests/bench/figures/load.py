"""How relay-server bears load, by connections of the older way: two WebSockets for each (`load hold`, `load bulk`).

Idle connections are opened one by one, so the rate is that of one client. The pairs of streams then share the
relay's process, which uses one core. Their time includes opening them.
"""

from __future__ import annotations

from tests.bench.figures.footprint import MIB, memory
from tests.bench.programs import Usage, holding
from tests.bench.programs import load as generate
from tests.bench.report import Row
from tests.bench.stage import Stage

__all__ = ["load"]

PAIRS = (1, 8, 64)


async def load(stage: Stage, *, quick: bool) -> list[Row]:
    """Idle connections first, then throughput."""
    return [*await _idle(stage, 250 if quick else 2500), *await _pairs(stage, 16 if quick else 128)]


async def _idle(stage: Stage, pairs: int) -> list[Row]:
    way = (await stage.ways("rendezvous"))["rendezvous"]
    before = {name: memory(child) for name, child in way.children.items()}
    usage = Usage(way.children)
    async with holding(way.port, pairs) as held:
        cpu = usage.seconds()
        after = {name: memory(child) for name, child in way.children.items()}
    sockets = {name: held.count * (2 if name == "relay" else 1) for name in before}
    each = {name: (after[name] - before[name]) / sockets[name] / 1024 for name in before}
    what = f"{2 * pairs} idle connections of the relay"
    return [
        Row(what, "memory for a connection", "KiB", {**each}),
        Row(what, "memory with all of them", "MiB", {name: size / MIB for name, size in after.items()}),
        Row(what, "opened per second, two each", "", {"client": held.count / held.seconds}),
        Row(what, "CPU for each opening, two connections", "ms", {n: 1000 * cpu[n] / held.count for n in cpu}),
    ]


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
