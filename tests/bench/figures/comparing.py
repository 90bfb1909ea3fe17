"""`@diff` of a tensor of 256 MiB in four ranks on one node: what the client's connections to the relay carry for it.

All bytes of both directions are counted, with TLS, WebSocket frames and keepalives. The tensors are arrays of numpy,
equal in all ranks but for one element of rank 3, or equal in all.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from relay_client.agents.tunnels import Tunnels
from relay_client.compare.collect import compare_as_text
from relay_client.compare.console import DIFF_SECONDS
from relay_core.agent_api.evaluation import Evaluate, Selection
from tests.bench.report import Limit, Row
from tests.bench.stage import Stage
from tests.support.many_ranks import Ranks, until
from tests.support.relay import LocalRelay, local_relay
from tests.support.tunnel import QUICK

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
EXPECTED = {"one element differs": ("weight", "differs first at"), "all are equal": ("same", "ranks 0-3")}
"""The expression, and what the table must contain."""


class Counter:
    """A port that forwards to another one, and counts what it carries."""

    def __init__(self, port: int) -> None:
        self.carried = 0
        self._port = port

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        answers, requests = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.gather(self._pass(reader, requests), self._pass(answers, writer), return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                self.carried += len(data)
                writer.write(data)
        finally:
            writer.close()


async def comparing(_stage: Stage, *, quick: bool) -> list[Row]:
    """One comparison where a rank differs, and one where none does."""
    with TemporaryDirectory() as directory:
        async with local_relay(Path(directory) / "tls") as relay:
            script = Path(directory) / "train.py"
            await asyncio.to_thread(script.write_text, TRAIN)
            async with Ranks(relay, script, RANKS), _counted_client(relay) as (client, counter):
                await until(lambda: len(list(Path(directory).glob("ready-*"))) == RANKS)
                await client.search.wait_for(
                    lambda: len(client.reachable_targets()) == RANKS or None, lambda _why: None
                )
                found = {name: await _bytes_of(client, counter, *what) for name, what in EXPECTED.items()}
    values = {name: count / RANKS for name, count in found.items()}
    limits = dict.fromkeys(values, Limit(1000))
    return [Row("@diff of 256 MiB in 4 ranks", "sent and received, for each rank", "bytes", values, limits=limits)]


@asynccontextmanager
async def _counted_client(relay: LocalRelay) -> AsyncIterator[tuple[Tunnels, Counter]]:
    counter = Counter(relay.server.port)
    server = await asyncio.start_server(counter.forward, "127.0.0.1")
    endpoint = dataclasses.replace(relay.endpoint, port=server.sockets[0].getsockname()[1])
    async with server, Tunnels(endpoint, relay.sender, relay.tls, settings=QUICK, tunnel_key=None) as client:
        yield client, counter


async def _bytes_of(client: Tunnels, counter: Counter, expression: str, expected: str) -> int:
    """Return the bytes of one comparison, whose table must contain a text."""
    before = counter.carried
    text = await compare_as_text(client, Evaluate(expression, seconds=DIFF_SECONDS, selection=Selection()))
    if expected not in text:
        raise RuntimeError(f"not what is measured: {text}")
    return counter.carried - before
