"""How long a small message takes through a relay while strangers without a key send TLS key updates to it.

A step of a debugger is two to five such messages in a row.
"""

from __future__ import annotations

import asyncio

from tests.bench.programs import load, python_json
from tests.bench.report import Row, percentile
from tests.bench.stage import Stage

__all__ = ["strangers"]

NUMBERS = (1, 8)


async def strangers(stage: Stage, *, quick: bool) -> list[Row]:
    """Without strangers first."""
    way, seconds = (await stage.ways("tunnel"))["tunnel"], 4 if quick else 10
    latencies = {"none": await _ping(way.port, seconds)}
    for number in NUMBERS:
        attack = python_json("tests.bench.strangers", stage.relay.port, stage.relay.ca_file, number, seconds)
        latencies[str(number)], _ = await asyncio.gather(_ping(way.port, seconds), attack)
    return [
        Row("strangers who send key updates", name, "ms", {f"{each}": of(found) for each, found in latencies.items()})
        for name, of in (
            ("round trip, 99th percentile", lambda found: 1000 * percentile(found, 99)),
            ("longest round trip", lambda found: 1000 * max(found)),
        )
    ]


async def _ping(port: int, seconds: float) -> list[float]:
    found: list[float] = (await load("ping", port, "--interval", 0.01, "--seconds", seconds))["latencies"]
    return found
