"""Facts about `--debug-monitor` on several nodes: real jobs and agents, a real relay, and what relay-client shows."""

import json
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.jobs.running import access, running_job, until_registered
from tests.support.machine.ports import consecutive_ports
from tests.support.machine.programs import Finished, run
from tests.support.network.relay import LocalRelay

pytestmark = pytest.mark.job

LARGE = 200 * 1024 * 1024
ABOVE_LARGE = {f"{megabytes}M" for megabytes in range(200, 320)}
SPINS = "while True:\n    sum(range(1000))\n"
HOLDS = f"import threading\ndata = bytearray({LARGE})\nthreading.Event().wait()\n"


def on_node(directory: Path, rank: int, code: str) -> tuple[Path, dict[str, str]]:
    """Return the script and the environment of the only rank of a node, in a directory of its own."""
    (node := directory / f"node-{rank}").mkdir()
    (script := node / "train.py").write_text(code)
    return script, {"RELAY_RANK": str(rank), "RELAY_WORLD_SIZE": "2", "RELAY_NODE_RANK": str(rank)}


async def targets(relay: LocalRelay, directory: Path, *options: str) -> Finished:
    """Return what `relay-client targets` prints to a pipe."""
    finished = await run("relay_client", "targets", *options, env=access(relay, directory, "send"))
    assert 0 == finished.status, finished.stderr
    return finished


async def sampled(relay: LocalRelay, directory: Path) -> list[dict[str, Any]]:
    """Return the two nodes as JSON once the first one computes, and the second one has allocated its memory."""
    while True:
        nodes = json.loads((await targets(relay, directory, "--json")).stdout)["nodes"]
        found = [each for node in nodes for each in node.get("usage", {"processes": ()})["processes"]]
        cpu, memory = ([each[name] for each in found] for name in ("cpu", "memory"))
        if len(found) == 2 and memory[1] > LARGE and cpu[0] > 5 * cpu[1]:
            return list(nodes)


async def shown(relay: LocalRelay, directory: Path) -> list[list[str]]:
    """Return the cells `cpu` and `mem` of both rows once they show that the first rank computes."""
    while True:
        heading, *rows = (await targets(relay, directory)).stdout.splitlines()
        assert "node gpu" not in heading
        start, end = heading.index("cpu"), heading.index("held by")
        cells = [row[start:end].split() for row in rows]
        if float(cells[0][0]) > float(cells[1][0]):
            return cells


async def test_two_nodes(relay: LocalRelay, tmp_path: Path) -> None:
    """Each node has the numbers of its own rank, and the memory of a rank is what the system reports of its process."""
    (spins, first), (holds, second) = on_node(tmp_path, 0, SPINS), on_node(tmp_path, 1, HOLDS)
    options = ("--port", str(consecutive_ports(2)[0]), "--debug-ranks", "none", "--debug-monitor", "0.5s")
    async with (
        running_job(relay, spins, *options, cwd=spins.parent, **first),
        running_job(relay, holds, *options, cwd=holds.parent, **second),
    ):
        await until_registered(relay, tmp_path, 2)
        nodes = await sampled(relay, tmp_path)
        assert [(0, 0), (1, 1)] == [(node["node_rank"], node["targets"][0]["rank"]) for node in nodes]
        assert nodes[0]["agent"] != nodes[1]["agent"]
        busy, large = (node["usage"]["processes"][0]["memory"] for node in nodes)
        assert busy < LARGE
        assert large == pytest.approx(psutil.Process(nodes[1]["targets"][0]["pid"]).memory_info().rss, rel=0.1)
        memory = [cells[1] for cells in await shown(relay, tmp_path)]
        assert memory[0] not in ABOVE_LARGE
        assert memory[1] in ABOVE_LARGE
    for node in (spins.parent, holds.parent):
        assert 1 == len(list((node / "outputs").glob("monitor-*.csv")))
