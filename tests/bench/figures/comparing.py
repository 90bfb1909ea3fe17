"""`@diff` of a tensor of 256 MiB in four ranks: what the client's connections to the relay carry for it.

All bytes of both directions are counted, with TLS, WebSocket frames and keepalives. The tensors are arrays of numpy,
equal in all ranks but for one element of rank 3, or equal in all. The ranks are on one node, or each on its own. On
nodes of their own, the figure is that of the connection that carries most.
"""

from __future__ import annotations

import asyncio
import contextlib
import operator
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

from relay_client.agents.tunnels import Tunnels
from relay_client.verbs.values import Diff
from relay_core.tunnel.limits import Settings
from tests.bench.report import Limit, Row
from tests.bench.stage import Stage
from tests.support.jobs.many_ranks import Ranks
from tests.support.jobs.running import running_job
from tests.support.machine.deadline import until
from tests.support.machine.ports import consecutive_ports
from tests.support.network.counted import Counter, counted_client
from tests.support.network.relay import LocalRelay, local_relay

__all__ = ["comparing"]

RANKS = 4
TRAIN = """\
import os
import time

import numpy

same = numpy.ones(64 * 1024 * 1024, "float32")
weight = same.copy()
rank = os.environ["RELAY_RANK"]
if rank == "3":
    weight[12_345_678] = 0.5
open(f"ready-{rank}", "w").close()
while True:
    time.sleep(0.02)
"""
EXPECTED = {"one element differs": ("weight", "first differs at"), "all are equal": ("same", "ranks 0-3")}
"""The expression, and what the table must contain."""


async def comparing(_stage: Stage, *, quick: bool) -> list[Row]:
    """One comparison where a rank differs, and one where none does: on one node, and on four."""
    with TemporaryDirectory() as directory:
        async with local_relay(Path(directory) / "tls") as relay:
            together = await _on_one_node(relay, Path(directory) / "one")
            apart = await _on_nodes_of_their_own(relay, Path(directory) / "four")
    near, far = (dict.fromkeys(EXPECTED, Limit(most)) for most in (1024, 10 * 1024))
    what = "sent and received, for each rank"
    return [
        Row("@diff of 256 MiB in 4 ranks of one node", what, "bytes", together, limits=near),
        Row("@diff of 256 MiB in 4 ranks, each on a node of its own", what, "bytes", apart, limits=far),
    ]


async def _on_one_node(relay: LocalRelay, directory: Path) -> dict[str, float]:
    script = await asyncio.to_thread(_write_script, directory)
    async with Ranks(relay, script, RANKS), _ready_client(relay, directory) as (client, counter):
        carried = {name: await _carried(client, counter, *what) for name, what in EXPECTED.items()}
        return {name: sum(each) / RANKS for name, each in carried.items()}


async def _on_nodes_of_their_own(relay: LocalRelay, directory: Path) -> dict[str, float]:
    port = consecutive_ports(RANKS)[0]
    async with contextlib.AsyncExitStack() as stack:
        for rank in range(RANKS):
            script = await asyncio.to_thread(_write_script, directory / str(rank))
            variables = {"RELAY_RANK": str(rank), "RELAY_WORLD_SIZE": str(RANKS)}
            options = ("--port", str(port), "--debug-ranks", "none")
            job = await stack.enter_async_context(running_job(relay, script, *options, cwd=script.parent, **variables))
            await job.line("listening on")
        client, counter = await stack.enter_async_context(_ready_client(relay, directory))
        return {name: max(await _carried(client, counter, *what)) for name, what in EXPECTED.items()}


def _write_script(directory: Path) -> Path:
    directory.mkdir(parents=True)
    script = directory / "train.py"
    script.write_text(TRAIN)
    return script


@contextlib.asynccontextmanager
async def _ready_client(relay: LocalRelay, directory: Path) -> AsyncIterator[tuple[Tunnels, Counter]]:
    """Run a client that has found all ranks, each with its tensors."""
    async with counted_client(relay, Settings()) as (client, counter):
        await until(lambda: len(list(directory.rglob("ready-*"))) == RANKS)
        await client.search.wait_for(lambda: len(client.reachable_targets()) == RANKS or None, lambda _why: None)
        await _carried(client, counter, "rank", "rank")  # announcements at the start are not counted
        yield client, counter


async def _carried(client: Tunnels, counter: Counter, expression: str, expected: str) -> list[int]:
    """Return the bytes of each connection for one comparison, whose table must contain a text."""
    before = list(counter.connections)
    text = (await Diff(expression).perform(client)).text
    if expected not in text:
        raise RuntimeError(f"not what is measured: {text}")
    return list(map(operator.sub, counter.connections, before))
