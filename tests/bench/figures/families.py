"""Agents on the hybrid connections of a family, beside as many as one hybrid connection accepts.

The relay has its quota of 25 listeners. All agents belong to one job, have eight ranks each and share one process. The
figures are the seconds from the start of `relay-client --ports` for the first 200 ranks until it has printed a line for
each agent, and the time to open a connection to a rank, from before the connect until the first byte has been echoed.
The CPU time of each program until all are found shows what the seconds are spent on: with fewer cores than programs,
they cannot be shorter than the sum divided by the cores.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import psutil

from relay_client.demo.environment import Child
from tests.bench.figures.capacity import free_range
from tests.bench.figures.footprint import MIB, memory
from tests.bench.programs import Usage, lines_of, load
from tests.bench.report import Limit, Row, median_ms
from tests.bench.stage import HC, Stage

__all__ = ["PER_HC", "PORTS", "RANKS", "families", "start_job", "until_found"]

PER_HC = 25
RANKS = 8
"""Ranks of an agent."""
PORTS = PER_HC * RANKS
MOST = 10.0
"""Seconds until all agents of a family are found."""


@dataclass(frozen=True)
class _Measured:
    listening: float
    found: float
    opening: float
    memory: float
    cpu: dict[str, float]
    """CPU seconds of each program, from the start of relay-client until all agents are found."""


async def families(stage: Stage, *, quick: bool) -> list[Row]:
    """One hybrid connection with 25 agents, then a family of eight with 200."""
    size = 2 if quick else 8
    alone = await _measure(stage, 1, 3 if quick else 20)
    family = await _measure(stage, size, 3 if quick else 20)
    what = f"{PER_HC} agents with {RANKS} ranks each, and {size * PER_HC} on {size} hybrid connections"
    peers = {"one": alone, "family": family}
    limits = {"family": Limit(MOST)} if stage.delays else {}

    def row(name: str, unit: str, value: Callable[[_Measured], float], limits: dict[str, Limit] | None = None) -> Row:
        return Row(what, name, unit, {peer: value(measured) for peer, measured in peers.items()}, limits=limits or {})

    return [
        row("all agents listen", "s", lambda measured: measured.listening),
        row("all are found, from the start of the program", "s", lambda measured: measured.found, limits),
        *(row(f"CPU of {name} until then", "s", partial(_cpu_of, name)) for name in alone.cpu),
        row("opening a connection, median", "ms", lambda measured: measured.opening),
        row("memory of relay-client", "MiB", lambda measured: measured.memory),
    ]


def _cpu_of(name: str, measured: _Measured) -> float:
    return measured.cpu[name]


async def _measure(stage: Stage, size: int, opens: int) -> _Measured:
    count = size * PER_HC
    first = free_range(PORTS)
    own, agents, listening = await start_job(stage, size, first)
    usage = Usage({"relay-server": own.relay.child, "all agents": agents})
    client, found = await until_found(own, count, f"{first}-{first + PORTS - 1}")
    cpu = {"relay-client": sum(psutil.Process(client.pid).cpu_times()[:2]), **usage.seconds()}
    times: list[float] = []
    for port in range(first, first + PORTS, PORTS // opens):
        await load("open", port, "--count", 1)
        times += (await load("open", port, "--count", 3))["times"]
    measured = _Measured(listening, found, median_ms(times), memory(client) / MIB, cpu)
    for child in (client, agents, own.relay.child):
        await stage.programs.end(child)
    return measured


async def start_job(stage: Stage, size: int, first: int) -> tuple[Stage, Child, float]:
    """Run a relay with a family and its agents; return them, and the seconds until all agents listen.

    Args:
        stage: Where they run; the returned one has the relay.
        size: Number of hybrid connections.
        first: The logical port of rank 0.
    """
    own = Stage(stage.programs, delays=stage.delays)
    own.relay = await own.start_relay(hc=f"{HC}:{size}")
    secrets = (own.relay.connection_file("agent"), own.relay.ca_file)
    numbers = (str(number) for number in (size * PER_HC, RANKS, first, stage.target_port))
    agents = await stage.programs.python("agents", "tests.bench.many_agents", *numbers, *secrets)
    line = await lines_of(agents, lambda text: "listening after" in text)
    return own, agents, float(line.split("listening after ")[1].split()[0])


async def until_found(stage: Stage, count: int, ports: str) -> tuple[Child, float]:
    """Run `relay-client --ports`; return it and the seconds from its start until it has printed each agent."""
    started = time.monotonic()
    client = await stage.begin_client("--ports", ports)
    await asyncio.wait_for(lines_of(client, lambda text: text.count("found ") >= count), 120)
    return client, time.monotonic() - started
