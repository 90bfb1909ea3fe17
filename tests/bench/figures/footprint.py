"""What the programs need: time from their start until they say that they are ready, and memory of their own (USS).

The same for a job that nobody debugs, beside a process that knows nothing of debugging, and the time of its training
steps: all jobs take short turns in each round, and each turn is compared with that of the first process in this round.
"""

from __future__ import annotations

import contextlib
import importlib.util
import statistics
import time
from collections.abc import AsyncIterator, Mapping, Sequence

import psutil

from relay_client.demo.environment import Child
from tests.bench.figures.overhead import FULL_SPEED, Round, State, Work, around_a_visit, rounds_of, row_of
from tests.bench.programs import Held, holding, lines_of, python_json
from tests.bench.report import Row
from tests.bench.stage import Stage
from tests.bench.workloads import ABSENT
from tests.support.machine.ports import free_port

__all__ = ["footprint"]

MIB = 1024 * 1024
CONNECTIONS = 50
"""Below the 64 that a session takes."""
JOBS = {
    "plain python": "nothing",
    "not a debug run": "no_debug_run",
    "--debug-ranks none": "debug_run",
    "attach on demand": "on_demand",
}
"""How each job is prepared (`tests.bench.workloads`)."""
STEP = Work("training step of torch, median", "torch_steps", 4, 3, unit="us")
STATES = {
    "plain python": State("nothing", ABSENT),
    "plain python, again": State("nothing", ABSENT),
    **{name: State(each, ABSENT, limit=FULL_SPEED) for name, each in JOBS.items() if each != "nothing"},
}
"""As `JOBS`; the difference of the first two means nothing."""
LOOP = Work("loop without calls, each pass, median", "without_calls", 100_000, 5)
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
    rows += await _jobs(stage, 3 if quick else 7)
    rows += await _steps(stage, quick=quick)
    return [*rows, await _loop(stage, 2 if quick else LOOP.generations)]


async def _jobs(stage: Stage, count: int) -> list[Row]:
    """Start each kind of job several times, in turns."""
    seconds: dict[str, list[float]] = {name: [] for name in JOBS}
    sizes: dict[str, list[float]] = {name: [] for name in JOBS}
    relay = [stage.relay.connection_file("agent"), stage.relay.ca_file]
    for _ in range(count):
        for name, preparation in JOBS.items():
            started = time.monotonic()
            talking = stage.programs.talking("tests.bench.workloads", "tight_loop", preparation, free_port(), *relay)
            async with talking as job:
                while await job.receive() != "ready":
                    pass
                seconds[name].append(time.monotonic() - started)
                await job.ask(1000)
                sizes[name].append(psutil.Process(job.pid).memory_full_info().uss)
    return [
        Row("job that nobody debugs", "from its start until it works, median", "ms", _medians(seconds, 1000)),
        Row("job that nobody debugs", "memory, median", "MiB", _medians(sizes, 1 / MIB)),
    ]


async def _steps(stage: Stage, *, quick: bool) -> list[Row]:
    """Let all kinds of job train alternately."""
    if importlib.util.find_spec("torch") is None:
        stage.skipped[STEP.what] = "torch is not installed (make extras)"
        return []
    rounds: list[Round] = []
    for generation in range(1 if quick else STEP.generations):
        rounds += await rounds_of(stage, STEP, STATES, 100 if quick else 200, seed=generation)
    return [row_of(STEP, rounds, STATES, "job that nobody debugs")]


async def _loop(stage: Stage, count: int) -> Row:
    """Let a debugger attach and leave while a loop is running, which calls nothing that would show it either."""
    turns = [await around_a_visit(stage, LOOP, 10) for _ in range(count)]
    ratios = {name: statistics.median(each[name] / each["before"] for each in turns) for name in turns[0]}
    pass_ns = 1e9 * min(each["before"] for each in turns) / LOOP.times
    values: dict[str, float | str] = {name: pass_ns * ratio for name, ratio in ratios.items()}
    return Row(
        "debugger that leaves", LOOP.what, LOOP.unit, values, detail={"turns": turns}, limits={"detached": FULL_SPEED}
    )


def _medians(found: Mapping[str, Sequence[float]], factor: float) -> dict[str, float | str]:
    return {name: factor * statistics.median(each) for name, each in found.items()}


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
