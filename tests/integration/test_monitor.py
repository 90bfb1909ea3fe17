"""Facts about `--debug-monitor`, with real jobs and a real relay."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.many_ranks import Ranks
from tests.support.ports import free_port
from tests.support.programs import Program, run
from tests.support.relay import LocalRelay
from tests.support.run_job import access, running_client, running_job

pytestmark = [pytest.mark.job, pytest.mark.timeout(240)]

LARGE = 200 * 1024 * 1024
TRAIN = f"""\
import os
import time

if os.environ["RELAY_RANK"] == "1":
    data = bytearray({LARGE})
    while True:
        sum(range(1000))
while True:
    time.sleep(0.02)
"""
UNTIL_WRITTEN = """\
import pathlib
import time

while not list(pathlib.Path("outputs").glob("monitor-*.csv")):
    time.sleep(0.02)
"""
INTERVAL = ("--debug-monitor", "0.5s")


async def nodes_of(client: Program, relay: LocalRelay, directory: Path) -> list[dict[str, Any]]:
    """Return the nodes as `relay-client status --json` shows them."""
    command = ("status", "--json", "--client", str(client.process.pid))
    finished = await run("relay_client", *command, env=access(relay, directory, "send"))
    assert 0 == finished.status, finished.stderr
    (found,) = json.loads(finished.stdout)
    nodes: list[dict[str, Any]] = found["nodes"]
    return nodes


async def test_processes_have_their_own_numbers(relay: LocalRelay, tmp_path: Path) -> None:
    """The rank that computes and holds memory shows both, and the other one neither, in `status` and the CSV file."""
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    async with (
        Ranks(relay, script, 2, *INTERVAL) as job,
        running_client(relay, tmp_path, "--ports", str(job.first_port)) as client,
    ):
        while True:
            nodes = await nodes_of(client, relay, tmp_path)
            targets = [target for node in nodes for target in node["targets"] if "cpu" in target]
            if len(targets) == 2 and targets[1]["memory"] > LARGE and targets[1]["cpu"] > 0:
                break
        assert targets[1]["cpu"] > targets[0]["cpu"]
        assert targets[0]["memory"] < LARGE
        (usage,) = (node["usage"] for node in nodes)
        assert 0 < usage["memory"] <= usage["total"]
        assert usage["cores"] >= 1
    (path,) = (tmp_path / "outputs").glob("monitor-*.csv")
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["what"] == "process"]
    assert {"0", "1"} == {row["rank"] for row in rows}
    (events,) = (tmp_path / "outputs" / "Diagnostics").glob("*/events.out.tfevents.*")
    assert b"rank_1/memory_gib" in events.read_bytes()
    assert LARGE < max(int(row["memory"]) for row in rows if row["rank"] == "1")
    assert LARGE > max(int(row["memory"]) for row in rows if row["rank"] == "0")


async def test_without_a_relay(relay: LocalRelay, tmp_path: Path) -> None:
    """A job that nobody debugs and whose relay cannot be reached has its file."""
    script = tmp_path / "train.py"
    script.write_text(
        "import pathlib, time\nwhile not list(pathlib.Path('outputs').glob('*.csv')):\n    time.sleep(0.02)\n"
    )
    await relay.server.stop()
    options = ("--debug-ranks", "none", "--port", str(free_port()), *INTERVAL)
    async with running_job(relay, script, *options, cwd=tmp_path) as job:
        assert 0 == (await job.finish()).status


async def test_outputs_that_cannot_be_written(relay: LocalRelay, tmp_path: Path) -> None:
    """The job runs, and the client has the numbers."""
    (tmp_path / "outputs").write_text("a file, not a directory")
    script = tmp_path / "train.py"
    script.write_text("import time\nwhile True:\n    time.sleep(0.02)\n")
    port = str(free_port())
    options = ("--debug-ranks", "none", "--port", port, *INTERVAL)
    async with (
        running_job(relay, script, *options, cwd=tmp_path) as job,
        running_client(relay, tmp_path, "--ports", port) as client,
    ):
        while not any("usage" in node for node in await nodes_of(client, relay, tmp_path)):
            pass
        assert job.process.returncode is None
