"""Time until one client has found all agents of a hybrid connection, and until it knows that there are no more.

The relay honours the listener selection headers, or it ignores them (`relay-server serve --ignore-listener-selection`)
and picks at random. Both times include the start of the program: `relay-client --ports` until it has printed a line for
each agent, and `relay-client targets` until its end, for which it has looked often enough in vain.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time

from tests.bench.programs import lines_of
from tests.bench.report import Row
from tests.bench.stage import Stage
from tests.support.machine.ports import free_port

__all__ = ["discovery"]

SIZES = (2, 8, 25)
"""Agents; Azure takes 25."""


async def discovery(stage: Stage, *, quick: bool) -> list[Row]:
    """Each number of agents at each kind of relay; the medians of some clients, because the choice is random."""
    ignoring = Stage(stage.programs, delays=stage.delays)
    ignoring.relay = await stage.start_relay("--ignore-listener-selection")
    ignoring.target_port = stage.target_port
    rows = []
    for agents in SIZES[:2] if quick else SIZES:
        times = {
            "honoured": await _times(stage, agents, 1 if quick else 5),
            "ignored": await _times(ignoring, agents, 1 if quick else 5),
        }
        for index, what in enumerate((f"{agents} agents are found", "and there are no more")):
            values = {name: statistics.median(pair[index] for pair in pairs) for name, pairs in times.items()}
            rows.append(Row("finding agents: selection headers", what, "s", values, detail={"seconds": times}))
    await stage.programs.end(ignoring.relay.child)
    return rows


async def _times(stage: Stage, agents: int, turns: int) -> list[tuple[float, float]]:
    children = [await stage.begin_agent({free_port(): stage.target_port}) for _ in range(agents)]
    await asyncio.gather(*(lines_of(child, lambda text: "listening on" in text) for child in children))
    pairs = [(await _until_found(stage, agents), await _until_certain(stage, agents)) for _ in range(turns)]
    for child in children:
        await stage.programs.end(child)
    return pairs


async def _until_found(stage: Stage, agents: int) -> float:
    started = time.monotonic()
    client = await stage.begin_client("--ports", str(free_port()))
    await lines_of(client, lambda text: text.count("found ") == agents)
    seconds = time.monotonic() - started
    await stage.programs.end(client)
    return seconds


async def _until_certain(stage: Stage, agents: int) -> float:
    started = time.monotonic()
    client = await stage.begin_client("targets", "--json")
    assert not await client.wait(within=120), client.output()
    seconds = time.monotonic() - started
    listed = json.loads("\n".join(client.lines()))
    found = {node["agent"] for node in listed["nodes"] if node["targets"] or node["forwards"]}
    assert agents == len(found), f"{len(found)} of {agents} agents were found"
    await stage.programs.end(client)
    return seconds
