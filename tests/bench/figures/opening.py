"""Time to open one more connection: from before the connect until the first byte has been echoed (`load open`).

Before it starts, each way has carried one connection, so the tunnel's session exists: that is the point of a session.
"""

from __future__ import annotations

from tests.bench.programs import load
from tests.bench.report import Row, median_ms, percentile
from tests.bench.stage import Stage

__all__ = ["opening"]


async def opening(stage: Stage, *, quick: bool) -> list[Row]:
    """The ways take turns, so that a noisy moment hits them all."""
    ways = await stage.ways()
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(3 if quick else 11):
        for name, way in ways.items():
            result = await load("open", way.port, "--count", 5 if turn else 1)
            if turn:
                times[name] += result["times"]
    return [
        Row("opening one more connection", "median", "ms", {name: median_ms(times[name]) for name in ways}),
        Row(
            "opening one more connection",
            "p95",
            "ms",
            {name: 1000 * percentile(times[name], 95) for name in ways},
            detail={"seconds": times},
        ),
    ]
