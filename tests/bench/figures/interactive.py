"""A 200-byte message to and fro every few milliseconds (`load ping`), idle and while another connection moves bulk."""

from __future__ import annotations

import asyncio
import contextlib

from tests.bench.programs import load
from tests.bench.report import Row, median_ms, percentile
from tests.bench.stage import Stage

__all__ = ["interactive"]

ENDLESS = 1_000_000
"""MiB; the load is ended when the messages have been measured."""


async def interactive(stage: Stage, *, quick: bool) -> list[Row]:
    """Idle and loaded take turns on each way."""
    ways = await stage.ways()
    seconds, turns = (1.5, 1) if quick else (4, 3)
    found: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in ways} for kind in ("idle", "up", "down")}
    for _ in range(turns):
        for name, way in ways.items():
            for kind, latencies in found.items():
                async with _bulk(way.port, kind):
                    result = await load("ping", way.port, "--seconds", seconds)
                latencies[name] += result["latencies"]
    rows = []
    for kind, what in (("idle", "idle"), ("up", "during an upload"), ("down", "during a download")):
        latencies = found[kind]
        rows.append(_row(f"{what}: median", {name: median_ms(latencies[name]) for name in ways}))
        rows.append(_row(f"{what}: p99", {name: 1000 * percentile(latencies[name], 99) for name in ways}))
        if kind != "idle":
            above = {n: 1000 * (percentile(latencies[n], 99) - percentile(found["idle"][n], 99)) for n in ways}
            rows.append(_row(f"{what}: p99 above idle", above))
    return rows


def _row(what: str, values: dict[str, float]) -> Row:
    return Row("round trip of 200 bytes", what, "ms", dict(values))


@contextlib.asynccontextmanager
async def _bulk(port: int, direction: str):
    """Move bulk for a block; none for a direction of `idle`."""
    if direction == "idle":
        yield
        return
    moving = asyncio.ensure_future(load("bulk", port, "--mib", ENDLESS, "--direction", direction))
    await asyncio.sleep(0.5)
    try:
        yield
    finally:
        moving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await moving
