"""What an outage of the relay costs: the relay's process is killed, and started again some seconds later.

The time from the moment at which the new relay is ready until the next answer of `load ping`, whose connection goes
through one client and one agent. A restart is what a service manager does: SIGTERM, and a new process at once.
"""

from __future__ import annotations

import asyncio
import time

from tests.bench.programs import load
from tests.bench.report import Limit, Row, median_ms
from tests.bench.stage import Relay, Stage
from tests.support.machine.ports import free_port

__all__ = ["outage"]

SECONDS = (1.0, 3.0, 10.0)
QUIET = 2.0
"""Seconds before an outage, and after the relay is back the least that is waited for an answer."""
LATEST = 40.0
"""Seconds after which an answer counts as lost: more than two delays between attempts."""
PROMISED_MS = 1500.0


async def outage(stage: Stage, *, quick: bool) -> list[Row]:
    """Each kind of outage some times; the median and the worst."""
    own = Stage(stage.programs, delays=stage.delays)
    own.target_port = stage.target_port
    own.relay = await own.start_relay()
    logical = free_port()
    children = [await own.start_agent({logical: own.target_port}), await own.start_client(str(logical))]
    rows = []
    for seconds in (*SECONDS, None):
        times = [await _late(own, logical, seconds) for _ in range(2 if quick else 6)]
        rows += _rows("a restart (SIGTERM)" if seconds is None else f"{seconds:g} s", times)
    for child in (*children, own.relay.child):
        await stage.programs.end(child)
    return rows


def _rows(what: str, times: list[float]) -> list[Row]:
    values = {"median": median_ms(times), "worst": 1000 * max(times)}
    limits = {"worst": Limit(PROMISED_MS)}
    figure = "an outage of the relay: until the next answer"
    return [Row(figure, what, "ms", dict(values), detail={"seconds": times}, limits=limits)]


async def _late(stage: Stage, port: int, seconds: float | None) -> float:
    """Return how long after the relay is back an answer comes."""
    pinging = asyncio.ensure_future(load("ping", port, "--seconds", 2 * QUIET + (seconds or 0.0) + 2.0))
    await asyncio.sleep(QUIET)
    await _take_down(stage.relay, gracefully=seconds is None)
    stage.programs.children.remove(stage.relay.child)
    await asyncio.sleep(seconds or 0.0)
    stage.relay.child = await stage.serve_relay(stage.relay.directory)
    back = time.monotonic()
    result = await asyncio.wait_for(pinging, LATEST)
    answered = (sent + latency for sent, latency in zip(result["sent_at"], result["latencies"], strict=True))
    return min(at for at in answered if at > back) - back


async def _take_down(relay: Relay, *, gracefully: bool) -> None:
    if gracefully:
        await relay.child.end()
    else:
        relay.child.kill()
        await relay.child.wait()
