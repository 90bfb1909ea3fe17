"""What a debugger costs a job that nobody debugs at the moment, and one that somebody does (`tests.bench.workloads`).

    never imported        a plain process; "again" is another one, and shows what differences mean nothing
    not a debug run       it imports relay_agent, and its command line does not ask for debugging
    armed on demand       registered: the laptop can attach at any time; debugpy is not imported
    detached again        the same, after a debugger with a breakpoint has come through the relay and gone
    debugger started      `debuggee.arm()`: what it is for the moment in which somebody attaches
    attached, idle        and somebody has, without a breakpoint
    breakpoint elsewhere  attached, with a breakpoint in another function of the same file
    debugpy.listen        plain debugpy, nobody attached

Each state is a process of its own for each kind of work, asked before and after whether it is in this state. In
each round all have a short turn, in an order that changes, and each turn is compared with the first process's of the
same round: a noisy moment hits both. The result is the median of these ratios, and in units of time that median times
the first process's best turn. Two processes never run the same loop equally fast, so a full run starts them anew
several times. The JSON has every turn, and the ratios of the best ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import random
import statistics
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from relay_client.dap import DapClient
from tests.bench.programs import Conversation
from tests.bench.report import Limit, Row
from tests.bench.stage import Stage
from tests.bench.workloads import ABSENT, ATTACHED, ELSEWHERE, LISTENING, RELEASED, SCRIPT
from tests.support.machine.ports import free_port

__all__ = ["FULL_SPEED", "Round", "State", "Work", "around_a_visit", "overhead", "rounds_of", "row_of"]

WITHIN = 30.0
"""Seconds for any one thing that a debugger does."""
FULL_SPEED = Limit(1.05, of="ratio")
"""What nobody should notice."""


Round = Mapping[str, float]
"""The seconds of each state's turn."""


@dataclass(frozen=True)
class Work:
    """What a job does."""

    what: str
    name: str
    """In `tests.bench.workloads`."""
    times: int
    """In a turn of some 3 ms where nothing slows it down."""
    generations: int
    """How often a full run starts the processes; a quick one does it half as often."""
    unit: str = "ns"


WORKS = [
    Work("tight loop, each pass", "tight_loop", 100_000, 5),
    Work("tiny calls, each", "tiny_calls", 60_000, 5),
    Work("torch training step", "torch_steps", 4, 3, unit="us"),
]
SLOW_ROUNDS = 10
"""Of so many rounds a slow state takes part in one."""
PER_SECOND = {"ns": 1e9, "us": 1e6}


@dataclass(frozen=True)
class State:
    """How a job is prepared, who visits it, and what it then is."""

    preparation: str
    found: str
    visitor: str = ""
    """A debugger that stays, "attached" or "breakpoint", or one that has "left"."""
    limit: Limit | None = None

    @property
    def slow(self) -> bool:
        """Whether up to Python 3.11 it takes too long to take part in every round."""
        return self.found in {LISTENING, ATTACHED}


STATES = {
    "never imported": State("nothing", ABSENT),
    "never imported, again": State("nothing", ABSENT),
    "not a debug run": State("no_debug_run", ABSENT, limit=FULL_SPEED),
    "armed on demand": State("on_demand", ABSENT, limit=FULL_SPEED),
    "detached again": State("on_demand", RELEASED, "left", limit=FULL_SPEED),
    "debugger started": State("arm", LISTENING),
    "attached, idle": State("arm", ATTACHED, "attached"),
    "breakpoint elsewhere": State("arm", ATTACHED, "breakpoint"),
    "debugpy.listen": State("debugpy_listen", LISTENING),
}


async def overhead(stage: Stage, *, quick: bool) -> list[Row]:
    """One kind of work after the other, so that few processes are there at a time."""
    rows = []
    for work in WORKS:
        if work.name == "torch_steps" and importlib.util.find_spec("torch") is None:
            stage.skipped[work.what] = "torch is not installed (make extras)"
            continue
        rounds: list[Round] = []
        for generation in range(work.generations // 2 if quick else work.generations):
            rounds += await rounds_of(stage, work, STATES, 100 if quick else 200, seed=generation)
        rows.append(row_of(work, rounds))
    return rows


def row_of(
    work: Work, rounds: Sequence[Round], states: Mapping[str, State] = STATES, figure: str = "overhead of a debugger"
) -> Row:
    """Return how each state compares with the first one."""
    first = next(iter(states))
    best = {name: min(each[name] for each in rounds if name in each) for name in states}
    ratios = {name: statistics.median(each[name] / each[first] for each in rounds if name in each) for name in states}
    plain = PER_SECOND[work.unit] * best[first] / work.times
    return Row(
        figure,
        work.what,
        work.unit,
        {name: plain * ratio for name, ratio in ratios.items()},
        detail={
            "rounds, in seconds": rounds,
            "each turn is so many": work.times,
            "ratios of the best turns": {name: seconds / best[first] for name, seconds in best.items()},
        },
        limits={name: state.limit for name, state in states.items() if state.limit is not None},
    )


async def rounds_of(stage: Stage, work: Work, states: Mapping[str, State], count: int, *, seed: int) -> list[Round]:
    """Start a process for each state, and let them take turns."""
    order = random.Random(seed)
    rounds: list[Round] = []
    async with contextlib.AsyncExitStack() as stack:
        waiting = [_job(stage, work, state, stack) for state in states.values()]
        jobs = dict(zip(states, await asyncio.gather(*waiting), strict=True))
        await _check(jobs, states)
        for number in range(count):
            now = [name for name, state in states.items() if not (state.slow and number % SLOW_ROUNDS)]
            rounds.append({name: await jobs[name].ask(work.times) for name in order.sample(now, len(now))})
        await _check(jobs, states)
    return rounds


async def _check(jobs: Mapping[str, Conversation], states: Mapping[str, State]) -> None:
    """Raise if a job is not in the state it is measured in."""
    for name, job in jobs.items():
        found = await job.ask("state")
        if found != states[name].found:
            raise RuntimeError(f"'{name}' is not what is measured: {found}")


async def around_a_visit(stage: Stage, work: Work, count: int) -> dict[str, float]:
    """Return the median seconds of turns of one job before, during and after the visit of a debugger."""
    async with contextlib.AsyncExitStack() as stack:
        job, port = await _start(stage, work, "on_demand", stack)
        found = {"before": [await job.ask(work.times) for _ in range(count)]}
        async with _visitor(stage, job, port):
            found["attached"] = [await job.ask(work.times) for _ in range(count)]
        found["detached"] = [await job.ask(work.times) for _ in range(count)]
    return {name: statistics.median(seconds) for name, seconds in found.items()}


async def _job(stage: Stage, work: Work, state: State, stack: contextlib.AsyncExitStack) -> Conversation:
    """Return a job that is in its state, until `stack` ends."""
    job, port = await _start(stage, work, state.preparation, stack)
    if state.visitor == "left":
        async with _visitor(stage, job, port):
            pass
    elif state.visitor:
        client = await stack.enter_async_context(await DapClient.connect("127.0.0.1", port))
        await _attach(client, breakpoints=state.visitor == "breakpoint")
    await job.ask(work.times)  # to warm up
    return job


async def _start(
    stage: Stage, work: Work, preparation: str, stack: contextlib.AsyncExitStack
) -> tuple[Conversation, int]:
    """Return a job that works until `stack` ends, and the port of its debugger."""
    port = free_port()
    relay = [stage.relay.connection_file("agent"), stage.relay.ca_file]
    talking = stage.programs.talking("tests.bench.workloads", work.name, preparation, port, *relay)
    job = await stack.enter_async_context(talking)
    while (received := await job.receive()) != "ready":
        port = received
    return job, port


async def _attach(client: DapClient, *, breakpoints: bool) -> None:
    """Do what an editor does with its default settings."""
    wanted = {str(SCRIPT): [{"line": line_of(ELSEWHERE, SCRIPT.read_text().splitlines())}]} if breakpoints else {}
    taken = await client.attach(wanted, exceptions=["uncaught"], within=WITHIN)
    if not all(each["verified"] for of_file in taken.values() for each in of_file):
        raise RuntimeError(f"a breakpoint was not taken: {taken}")


def line_of(code: str, lines: Sequence[str]) -> int:
    """Return the number of the line that consists of `code`."""
    return next(number for number, line in enumerate(lines, start=1) if line.strip() == code)


@contextlib.asynccontextmanager
async def _visitor(stage: Stage, job: Conversation, port: int) -> AsyncIterator[None]:
    """Attach through the relay for a block; the block has ended when the job has noticed that the debugger has left."""
    program = await stage.start_client(str(port))
    async with await DapClient.connect("127.0.0.1", port) as client:
        await _attach(client, breakpoints=True)
        await job.ask(1)
        if (found := await job.ask("state")) != ATTACHED:
            raise RuntimeError(f"the visitor is not there: {found}")
        yield
        await client.request("disconnect", {"terminateDebuggee": False}, within=WITHIN)
    deadline = time.monotonic() + WITHIN
    while await job.ask("state") != RELEASED and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    await stage.programs.end(program)
