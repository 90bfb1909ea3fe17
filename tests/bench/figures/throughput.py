"""Throughput of one connection and of eight, up (client to target) and down (`load bulk`): the best of several turns.

The best, because whatever else the machine does can only make it slower. The JSON has every turn, and what each
program of the path carried for a second of its processor time: that shows which of them is the limit.
"""

from __future__ import annotations

from tests.bench.programs import Usage, load
from tests.bench.report import Row
from tests.bench.stage import Stage, Way

__all__ = ["throughput"]

SIZES = {"direct": 512}
"""MiB to carry, where the usual amount would be over too soon to be measured."""


async def throughput(stage: Stage, *, quick: bool) -> list[Row]:
    """With delays a window's worth is under way per round trip, so there is less to carry."""
    ways = await stage.ways()
    usual, turns = (16, 1 if quick else 2) if stage.delays else (96, 3) if quick else (256, 7)
    rows = []
    for connections in (1, 8):
        for direction in ("up", "down"):
            speeds: dict[str, list[float]] = {name: [] for name in ways}
            per_cpu: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
            for _ in range(turns):
                for name, way in ways.items():
                    mib = usual if stage.delays else max(usual, SIZES.get(name, 0))
                    speed, carried = await _turn(way, mib, direction, connections)
                    speeds[name].append(speed)
                    per_cpu[name].append(carried)
            rows.append(
                Row(
                    "throughput",
                    f"{connections} connection{'s' * (connections > 1)}, {direction}",
                    "MiB/s",
                    {name: max(found) for name, found in speeds.items()},
                    detail={"MiB/s": speeds, "MiB per CPU second": per_cpu},
                )
            )
            if connections == 1 and not stage.delays and "tunnel" in ways:
                best = {part: max(turn[part] for turn in per_cpu["tunnel"]) for part in per_cpu["tunnel"][0]}
                rows.append(Row("throughput of a processor", f"tunnel, {direction}", "MiB per CPU s", dict(best)))
    return sorted(rows, key=lambda row: row.figure)


async def _turn(way: Way, mib: int, direction: str, connections: int) -> tuple[float, dict[str, float]]:
    usage = Usage(way.children)
    result = await load("bulk", way.port, "--mib", mib, "--direction", direction, "--connections", connections)
    return mib / result["seconds"], {name: mib / max(cpu, 0.01) for name, cpu in usage.seconds().items()}
