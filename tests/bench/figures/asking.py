"""Time from the start of `relay-client stacks` to its first output, with a running relay-client and without one.

The four ranks are pretended, and one real agent answers for them. A turn runs the command alone, then beside a
relay-client that has found the agent and answers for it.
"""

from __future__ import annotations

import asyncio
import statistics
import time

from tests.bench.pretended_ranks import RANKS_PER_AGENT
from tests.bench.programs import lines_of
from tests.bench.report import Limit, Row
from tests.bench.stage import Stage
from tests.support.machine.ports import free_port

__all__ = ["asking"]

ALONE, BESIDE = "without a running relay-client", "with one"
MOST = 0.5
"""Part of the time that the command needs alone."""
EXPECTED = "load_batch"
"""In the stack of the last rank."""


async def asking(stage: Stage, *, quick: bool) -> list[Row]:
    """The medians of some turns."""
    secrets = (stage.relay.connection_file("agent"), stage.relay.ca_file)
    agent = await stage.programs.python("agents", "tests.bench.pretended_ranks", str(RANKS_PER_AGENT), *secrets)
    await lines_of(agent, lambda text: "listening" in text)
    times: dict[str, list[float]] = {ALONE: [], BESIDE: []}
    for _ in range(3 if quick else 10):
        times[ALONE].append(await _until_output(stage))
        client = await stage.begin_client("--ports", str(free_port()))
        await lines_of(client, lambda text: "found " in text)
        times[BESIDE].append(await _until_output(stage))
        await stage.programs.end(client)
    await stage.programs.end(agent)
    values = {name: statistics.median(seconds) for name, seconds in times.items()}
    limits = {BESIDE: Limit(MOST, of="ratio")}
    what = "start of `relay-client stacks` to its first output"
    return [Row("a question to the job", what, "s", {**values}, detail={"seconds": times}, limits=limits)]


async def _until_output(stage: Stage) -> float:
    started = time.monotonic()
    command = await stage.begin_client("stacks")
    while not command.lines() and command.running:
        await asyncio.sleep(0.002)
    seconds = time.monotonic() - started
    assert not await command.wait(within=60), command.output()
    assert EXPECTED in command.output(), command.output()
    await stage.programs.end(command)
    return seconds
