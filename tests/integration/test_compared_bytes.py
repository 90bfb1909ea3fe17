"""Facts about the bytes that a comparison carries, with real ranks and arrays of 64 MiB."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

from relay_client.agents.tunnels import Tunnels
from relay_client.verbs.values import Diff
from relay_core.tunnel.limits import Settings
from tests.support.jobs.running import running_job
from tests.support.machine.deadline import until
from tests.support.machine.ports import consecutive_ports
from tests.support.network.counted import Counter, counted_client
from tests.support.network.relay import LocalRelay

PER_RANK = 1024
"""Bytes of a comparison on one node."""
BETWEEN = 10 * 1024
"""Bytes of a comparison of ranks on different nodes, each step of which is a request to both agents."""
PING_AFTER = Settings().ping_after
KEEPALIVES = 220
"""Bytes of the pings of both sides, and of their pongs, after that time."""
NODES = {"a": (0, 1), "b": (2,)}
"""Ranks by node."""
ON_ONE_NODE = {
    "same": "ranks 0-1  equal, checksum ",
    "one": "first differs at the value (16777216,) float32, element 12,345,678: ",
    "many": "first differs at the value (16777216,) float32, element 7,654,321: ",
}
"""Variables, and what is shown."""
BETWEEN_NODES = {
    "node": "rank 2     first differs at the value: (1001,) int64 instead of (1000,) int64",
    "other": "rank 2     first differs at the value (1000,) int64, element 777: 778 instead of 777",
}
ALONE = {
    "same": "ranks 0-3  equal, checksum ",
    "one": "rank 1       first differs at the value (16777216,) float32, element 12,345,678: 0.5 instead of 1",
    "many": "rank 1       first differs at the value (16777216,) float32, element 7,654,321: 0 instead of 1",
    "layers": "rank 1       first differs at 'layers.37.weight' (1000,) float32, element 42: -1 instead of 37",
    "node": "first differs at the value: (1000,) int64 instead of (1001,) int64",
}
"""The same with a node for each rank."""
TRAIN = """\
import os
import time

import numpy

rank = int(os.environ["RELAY_RANK"])
same = numpy.ones(16 * 1024 * 1024, "float32")
one = same.copy()
layers = {f"layers.{index}.weight": numpy.full(1000, index, "float32") for index in range(100)}
if rank == 1:
    one[12_345_678] = 0.5
    layers["layers.37.weight"][42:] = -1
many = same.copy()
if rank == 1:
    many[7_654_321:] = numpy.arange(many.size - 7_654_321)
node = numpy.arange(1000 if rank < 2 else 1001)
other = numpy.arange(1000)
other[777] += rank == 2
open(f"ready-{rank}", "w").close()
while True:
    time.sleep(0.02)
"""


@contextlib.asynccontextmanager
async def job(relay: LocalRelay, directory: Path, nodes: dict[str, tuple[int, ...]]) -> AsyncIterator[Compared]:
    """Run a job; yield its client when all ranks have their variables."""
    world = sum(map(len, nodes.values()))
    port = consecutive_ports(world)[0]
    async with contextlib.AsyncExitStack() as stack:
        for name, ranks in nodes.items():
            script = directory / name / "train.py"
            script.parent.mkdir()
            script.write_text(TRAIN)
            for rank in ranks:
                options = ("--port", str(port), "--debug-ranks", "none")
                variables = {"RELAY_RANK": str(rank), "RELAY_WORLD_SIZE": str(world)}
                running = running_job(relay, script, *options, cwd=script.parent, **variables)
                process = await stack.enter_async_context(running)
                if rank == ranks[0]:  # it starts the agent, which has its stderr, and is the last of its node to end
                    await process.line("listening on")
        client, counter = await stack.enter_async_context(counted_client(relay, Settings()))
        await until(lambda: len(list(directory.glob("*/ready-*"))) == world)
        await client.search.wait_for(lambda: len(client.reachable_targets()) == world or None, lambda _why: None)
        await Compared(client, counter).first_line("rank")  # announcements at the start are not counted
        yield Compared(client, counter)


class Compared:
    """A client that compares variables, and what its connections have carried before each comparison."""

    def __init__(self, client: Tunnels, counter: Counter) -> None:
        self.client = client
        self._counter = counter
        self._tunnels = set(counter.open)
        """Connections that may be tunnels; others are attempts to find further agents, which end soon."""
        self._before: list[tuple[float, list[int]]] = []

    async def first_line(self, name: str, ranks: str = "all") -> str:
        """Compare a variable, and return the first line of the table."""
        self._before.append((time.monotonic(), list(self._counter.connections)))
        return (await Diff(name, ranks).perform(self.client)).text.splitlines()[0]

    def most_carried(self) -> list[int]:
        """Return the bytes of the connection that has carried most, for each comparison but the last.

        An interval ends when the next comparison starts: it includes acknowledgements that are sent after a response.
        Keepalives, which a tunnel carries if the interval is long, do not count.
        """
        tunnels = self._tunnels & self._counter.open
        return [
            max(after[tunnel] - before[tunnel] for tunnel in tunnels) - KEEPALIVES * int((end - start) // PING_AFTER)
            for (start, before), (end, after) in pairwise(self._before)
        ]


async def test_difference_is_found_on_the_node(relay: LocalRelay, tmp_path: Path) -> None:
    """A difference on one node costs less than 1 KiB for each rank in both directions; one between nodes is found."""
    async with job(relay, tmp_path, NODES) as compared:
        for name, expected in ON_ONE_NODE.items():
            assert expected in await compared.first_line(name, "0-1")
        for name, expected in BETWEEN_NODES.items():
            assert expected in await compared.first_line(name)
        assert all(carried < 2 * PER_RANK for carried in compared.most_carried()[: len(ON_ONE_NODE)])


async def test_difference_between_nodes_of_one_rank(relay: LocalRelay, tmp_path: Path) -> None:
    """With a single rank on each node, no connection carries 10 KiB for a comparison, wherever the difference is."""
    async with job(relay, tmp_path, {str(rank): (rank,) for rank in range(4)}) as compared:
        for name, expected in ALONE.items():
            assert expected in await compared.first_line(name)
        await compared.first_line("same")
        assert max(compared.most_carried()) < BETWEEN, compared.most_carried()
