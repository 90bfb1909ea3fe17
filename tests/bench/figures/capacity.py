"""How many agents and targets one client holds, and how many connections one relay-server (`load hold`).

The numbers are what was asked for, proved with a byte to and fro on each; none is a limit that was found. In one row,
the pretended ranks of one node crash together, until a client has logged all of them.
"""

from __future__ import annotations

import time

import psutil

from tests.bench.figures.footprint import MIB, memory
from tests.bench.programs import holding, lines_of
from tests.bench.report import Row
from tests.bench.stage import Stage
from tests.support.machine.ports import free_port

__all__ = ["capacity", "free_range"]

TARGETS = 8
"""Ranks of a node."""


async def capacity(stage: Stage, *, quick: bool) -> list[Row]:
    """Agents on the hybrid connection of their own; the relay's connections are of the older way: two each."""
    return [
        *await _agents(stage, 3 if quick else 16),
        *await _crash(stage, 1000),
        *await _relay(stage, 50 if quick else 500),
    ]


async def _agents(stage: Stage, agents: int) -> list[Row]:
    first = free_range(agents * TARGETS)
    children = [
        await stage.start_agent(
            dict.fromkeys(range(first + number * TARGETS, first + (number + 1) * TARGETS), stage.target_port)
        )
        for number in range(agents)
    ]
    client = await stage.start_client(f"{first}-{first + agents * TARGETS - 1}")
    before = memory(client)
    async with holding(first, agents * TARGETS, ports=agents * TARGETS) as held:
        size = memory(client)
    rows = [
        Row("capacity", f"targets that answer, of {agents} agents with {TARGETS} each", "", {"client": held.count}),
        Row("capacity", "until all have answered", "s", {"client": held.seconds}),
        Row("capacity", "memory for an agent with its targets", "KiB", {"client": (size - before) / agents / 1024}),
    ]
    for child in (client, *children):
        await stage.programs.end(child)
    return rows


async def _crash(stage: Stage, ranks: int) -> list[Row]:
    secrets = (stage.relay.connection_file("agent"), stage.relay.ca_file)
    async with stage.programs.talking("tests.bench.changing_ranks", ranks, ranks, *secrets) as job:
        await job.receive()
        client = await stage.begin_client("--ports", str(free_port()))
        await lines_of(client, lambda text: "connected, round trip" in text)
        agent, started = psutil.Process(job.pid), time.perf_counter()
        before = agent.cpu_times()
        await job.ask("crash")
        await lines_of(client, lambda text: text.count(" crashed") >= ranks)
        seconds, after = time.perf_counter() - started, agent.cpu_times()
        await stage.programs.end(client)
    what = f"{ranks} ranks of a node crash together"
    used = after.user + after.system - before.user - before.system
    return [
        Row("capacity", f"{what}, until logged", "s", {"client": seconds}),
        Row("capacity", f"{what}, CPU time", "s", {"agent": used}),
    ]


async def _relay(stage: Stage, count: int) -> list[Row]:
    way = (await stage.ways("rendezvous"))["rendezvous"]
    before = memory(stage.relay.child)
    async with holding(way.port, count) as held:
        size = memory(stage.relay.child)
    return [
        Row("capacity", f"connections held, of {2 * count} asked for", "", {"relay": 2 * held.count}),
        Row("capacity", "memory for a connection", "KiB", {"relay": (size - before) / held.count / 2 / 1024}),
        Row("capacity", "memory with all of them", "MiB", {"relay": size / MIB}),
    ]


def free_range(size: int) -> int:
    """Return the first of so many neighbouring ports that nobody listens on."""
    first = last = free_port()
    while last - first + 1 < size:
        port = free_port()
        first, last = (first, port) if port == last + 1 else (port, port)
    return first
