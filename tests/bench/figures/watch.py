"""What a watch costs, and when its hits arrive. `relay-client watch` is started and ended in each turn of the same job.

- A training step of two gloo ranks, which `torchrun` has started (`tests.bench.data_parallel`). The time that the
  watch itself reports as spent is that of its checks of the gradients, so the step is also shown without it.
- A line that is reached millions of times: the only one of a function (`tests.bench.workloads.tiny_calls`).
- The time from a hit, whose value is the time of its evaluation, until the client has printed it. It is measured with
  one process, and with two of which one reaches the line: the agent then waits a moment for the other one.

Each turn is compared with the turn without a watch of the same round. It consists of parts, of which the median counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence

from relay_client.demo.environment import Child
from tests.bench import workloads
from tests.bench.figures.overhead import FULL_SPEED, Round, line_of
from tests.bench.programs import Conversation, lines_of, load
from tests.bench.report import Limit, Row, median_ms
from tests.bench.stage import HC, Stage
from tests.support.machine.ports import consecutive_ports

__all__ = ["from_hits", "hot_line", "training_steps", "watch"]

PLAIN, UNREACHED, NAN, UNCHECKED = "no watch", "line never reached", "watch nan", "watch nan, without its checks"
REACHED = "line reached each time"
STEPS, CALLS = 5, 200_000
"""In a part of a turn."""
PARTS = 5
ONE, TWO = "one process", "two processes on its node"
IDLE_LINE, IDLE_NAN = Limit(1.005, of="ratio"), Limit(1.01, of="ratio")
"""How much longer a training step may take."""
MOST_NS = 500
"""How much longer a line may take that is watched."""
MOST_MS = 50
"""From a hit until it is printed, beyond a round trip."""


async def watch(stage: Stage, *, quick: bool) -> list[Row]:
    """With delays, only the time until a hit is printed: they do not change the costs."""
    rows = []
    if not stage.delays and importlib.util.find_spec("torch") is None:
        stage.skipped["training step during a watch"] = "torch is not installed (make extras)"
    elif not stage.delays:
        rows += await _training(stage, 2 if quick else 12)
    lines = workloads.SCRIPT.read_text().splitlines()
    line, other = (f"{workloads.SCRIPT}:{line_of(code, lines)}" for code in ("return number", workloads.ELSEWHERE))
    ports = consecutive_ports(2)
    async with contextlib.AsyncExitStack() as stack:
        job, _other = [await stack.enter_async_context(_job(stage, port)) for port in ports]
        if not stage.delays:
            places = {PLAIN: (), UNREACHED: (other,), REACHED: (line, "number")}
            rows += hot_line([await _round(stage, job, ports[:1], places, CALLS) for _ in range(2 if quick else 6)])
        found = {name: ports[:number] for name, number in ((ONE, 1), (TWO, 2))}
        seconds = {name: await _hits(stage, job, each, line, 6 if quick else 30) for name, each in found.items()}
    way = (await stage.ways("tunnel"))["tunnel"]
    round_trips = (await load("ping", way.port, "--seconds", 2))["latencies"]
    return [*rows, *from_hits(seconds, median_ms(round_trips))]


async def _training(stage: Stage, rounds: int) -> list[Row]:
    ports = consecutive_ports(2)
    secrets = ("--connection-string-file", stage.relay.connection_file("agent"), "--ca-file", stage.relay.ca_file)
    where = ("--hc", HC, "--port", ports[0], "--debug-ranks", "none", *secrets)
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
    script = workloads.SCRIPT.with_name("data_parallel.py")
    line = line_of(workloads.ELSEWHERE, script.read_text().splitlines())
    places = {PLAIN: (), UNREACHED: (f"{script}:{line}",), NAN: ("nan",)}
    command = ("run", *where, "--", *torchrun, "-m", "tests.bench.data_parallel")
    async with stage.programs.talking("relay_agent", *command) as job:
        await job.receive()
        return training_steps([await _round(stage, job, ports, places, STEPS) for _ in range(rounds)])


@contextlib.asynccontextmanager
async def _job(stage: Stage, port: int) -> AsyncIterator[Conversation]:
    secrets = (stage.relay.connection_file("agent"), stage.relay.ca_file)
    async with stage.programs.talking("tests.bench.workloads", "tiny_calls", "on_demand", port, *secrets) as job:
        while await job.receive() != "ready":
            pass
        yield job


async def _round(
    stage: Stage, job: Conversation, ports: Sequence[int], places: Mapping[str, Sequence[str]], times: int
) -> Round:
    """Return the seconds that the job needs each time, with each of the watches."""
    turns = {}
    for name in random.sample([*places], len(places)):
        async with _watching(stage, ports, *places[name]) as client:
            parts = [await job.ask(times) / times for _ in range(PARTS + 1)]
        turns[name] = statistics.median(parts[1:])  # the first one is to warm up
        ranks = json.loads(client.lines()[-1])["ranks"] if client else []
        if any(not rank["place"] or bool(rank["reached"]) == (name == UNREACHED) for rank in ranks):
            raise RuntimeError(f"'{name}' is not what is measured: {ranks}")
        if name == NAN:
            turns[UNCHECKED] = turns[NAN] - ranks[0]["spent"] / ranks[0]["reached"]
    return {name: turns[name] for name in (*places, UNCHECKED) if name in turns}


@contextlib.asynccontextmanager
async def _watching(stage: Stage, ports: Sequence[int], *what: str) -> AsyncIterator[Child | None]:
    """Watch something for a block, unless there is nothing to watch."""
    if not what:
        yield None
        return
    client = await stage.begin_client("watch", *what, "--ports", f"{ports[0]}-{ports[-1]}", "--json")
    await lines_of(client, lambda text: "watching " in text)
    yield client
    await stage.programs.end(client)


async def _hits(stage: Stage, job: Conversation, ports: Sequence[int], line: str, count: int) -> list[float]:
    """Return the seconds from each of some hits until the client has printed it."""
    seconds = []
    async with _watching(stage, ports, line, "__import__('time').time()") as client:
        for number in range(count):
            await asyncio.sleep(random.uniform(0, 0.4))  # at any time of the client's questions
            await job.ask(1)
            while len(lines := client.lines()) <= number and client.running:
                await asyncio.sleep(0.001)
            seconds.append(time.time() - float(json.loads(lines[number])["text"]))
    return seconds


def training_steps(rounds: Sequence[Round]) -> list[Row]:
    """Return the time of a step, and how much of it the checks take."""
    figure = "training step of two ranks during a watch"
    checks = median_ms(turns[NAN] - turns[UNCHECKED] for turns in rounds)
    return [
        _row(figure, "step", "ms", 1e3, rounds, {UNREACHED: IDLE_LINE, UNCHECKED: IDLE_NAN}),
        Row(figure, "checks of the gradients in a step", "ms", {NAN: checks}),
    ]


def hot_line(rounds: Sequence[Round]) -> list[Row]:
    """Return the time of a call of a function with one line, and what a hit of this line adds."""
    figure = "line that is reached millions of times"
    added = 1e9 * statistics.median(turns[REACHED] - turns[PLAIN] for turns in rounds)
    return [
        _row(figure, "call of its function", "ns", 1e9, rounds, {UNREACHED: FULL_SPEED}),
        Row(figure, "what a hit adds", "ns", {REACHED: added}, limits={REACHED: Limit(MOST_NS)}),
    ]


def _row(
    figure: str, what: str, unit: str, per_second: float, rounds: Sequence[Round], limits: dict[str, Limit]
) -> Row:
    """Return how each state compares with the one without a watch."""
    plain = per_second * statistics.median(turns[PLAIN] for turns in rounds)
    ratios = {name: statistics.median(turns[name] / turns[PLAIN] for turns in rounds) for name in rounds[0]}
    values = {name: plain * ratio for name, ratio in ratios.items()}
    return Row(figure, what, unit, {**values}, detail={"seconds": rounds}, limits=limits)


def from_hits(seconds: Mapping[str, Sequence[float]], round_trip: float) -> list[Row]:
    """Return when hits are printed, by job, and the round trip of the link, which is in milliseconds."""
    figure, limit = "from a hit of a watch until it is printed", Limit(round(round_trip) + MOST_MS)
    medians, worst = (
        {name: of(each) for name, each in seconds.items()} for of in (median_ms, lambda each: 1e3 * max(each))
    )
    return [
        Row(figure, "median", "ms", medians, detail={"seconds": seconds}, limits=dict.fromkeys(seconds, limit)),
        Row(figure, "worst", "ms", worst),
        Row(figure, "round trip of the link, median", "ms", {ONE: round_trip}),
    ]
