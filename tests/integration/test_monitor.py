"""Facts about `--debug-monitor`, with real jobs and a real relay."""

import asyncio
import contextlib
import csv
import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.jobs.many_ranks import Ranks
from tests.support.jobs.running import access, agents_on, running_client, running_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import Program, program, run
from tests.support.network.relay import LocalRelay

pytestmark = pytest.mark.job

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
UNTIL_BOTH = (
    UNTIL_WRITTEN
    + """\
while not {"0", "1"} <= {line.split(",")[3] for line in next(pathlib.Path("outputs").glob("*.csv")).open()}:
    time.sleep(0.02)
"""
)
ITS_OWN_ROW = (
    UNTIL_WRITTEN
    + """\
while not any(",process,0," in line for line in next(pathlib.Path("outputs").glob("*.csv")).open()):
    time.sleep(0.02)
"""
)
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
            usage = nodes[0].get("usage", {"processes": ()}) if nodes else {"processes": ()}
            first, second, *_ = [*usage["processes"], {}, {}]
            if second.get("memory", 0) > LARGE and second["cpu"] > 0:
                break
        assert second["cpu"] > first["cpu"]
        assert first["memory"] < LARGE
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


async def test_metrics_for_prometheus(relay: LocalRelay, tmp_path: Path) -> None:
    """The node's agent serves the latest numbers of node and rank at the given address."""
    script, port = tmp_path / "train.py", free_port()
    script.write_text("import time\nwhile True: time.sleep(0.02)\n")
    options = ("--port", str(free_port()), "--debug-ranks", "none", "--debug-metrics", str(port), *INTERVAL)
    async with running_job(relay, script, *options, cwd=tmp_path):
        text = ""
        while 'process_memory_usage_bytes{host_name="' not in text:
            with contextlib.suppress(OSError):
                text = await asyncio.to_thread(fetch, f"http://127.0.0.1:{port}/metrics")
        assert ',rank="0",port="' in text
        assert "# TYPE system_cpu_utilization_ratio gauge\n" in text


HOLDS_GIL = """\
import ctypes
import pathlib
import time

def samples():
    return sum(",node," in line for path in pathlib.Path("outputs").glob("*.csv") for line in path.open())

while samples() < 1:
    time.sleep(0.02)
before = samples()
ctypes.PyDLL(None).sleep(6)  # holds the GIL
print(samples() - before, flush=True)
"""


async def test_c_code_that_holds_the_gil(tmp_path: Path) -> None:
    """A rank that cannot answer in Python is still sampled, at the interval."""
    script = tmp_path / "train.py"
    script.write_text(HOLDS_GIL)
    command = ("run", *INTERVAL, "--", sys.executable, str(script))
    async with program("relay_agent", *command, env={"RELAY_NODE_DIR": str(tmp_path / "node")}, cwd=tmp_path) as job:
        finished = await job.finish()
    assert 3 <= int(finished.stdout)
    assert {""} == {row["torch_allocated"] for row in rows_in(tmp_path)}


LOCAL = "relay-agent: no debugger can attach: no hybrid connection is set; --debug-monitor writes to outputs/"


def rows_in(directory: Path) -> list[dict[str, str]]:
    """Return the rows of the only monitor file of a job."""
    (path,) = (directory / "outputs").glob("monitor-*.csv")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


async def test_a_local_run(tmp_path: Path) -> None:
    """Without a relay, the file, TensorBoard log and metrics exist; no rank waits, and one line gives the reason."""
    script, port = tmp_path / "train.py", free_port()
    script.write_text("import time\nwhile True: time.sleep(0.02)\n")
    node = {"RELAY_NODE_DIR": str(tmp_path / "node")}
    command = ("run", *INTERVAL, "--debug-metrics", str(port), "--", sys.executable, str(script))
    async with program("relay_agent", *command, env=node, cwd=tmp_path) as job:
        text = ""
        while 'process_memory_usage_bytes{host_name="' not in text:
            with contextlib.suppress(OSError):
                text = await asyncio.to_thread(fetch, f"http://127.0.0.1:{port}/metrics")
        assert job.process.returncode is None
        job.process.kill()
        finished = await job.finish()
    assert [LOCAL] == finished.stderr.splitlines()
    assert {"node", "process"} <= {row["what"] for row in rows_in(tmp_path)}
    assert list((tmp_path / "outputs" / "Diagnostics").glob("*/events.out.tfevents.*"))
    await until_none(tmp_path / "node")


async def test_a_local_run_whose_agent_is_killed(tmp_path: Path) -> None:
    """The process starts another agent, which continues to take samples."""
    script = tmp_path / "train.py"
    script.write_text(UNTIL_WRITTEN + "while len(list(pathlib.Path('outputs').glob('*/*/*'))) < 2: time.sleep(0.02)\n")
    node = tmp_path / "node"
    command = ("run", *INTERVAL, "--", sys.executable, str(script))
    async with program("relay_agent", *command, env={"RELAY_NODE_DIR": str(node)}, cwd=tmp_path) as job:
        while not list((tmp_path / "outputs").glob("*.csv")):
            await asyncio.sleep(0.02)
        for agent in agents_on(node):
            agent.kill()
        finished = await job.finish()
    assert (0, [LOCAL]) == (finished.status, finished.stderr.splitlines())


async def test_local_ranks(tmp_path: Path) -> None:
    """All ranks of a local run are in one file, and the first one logs the line."""
    script = tmp_path / "train.py"
    script.write_text(UNTIL_BOTH)
    variables = {"RELAY_NODE_DIR": str(tmp_path / "node"), "RELAY_WORLD_SIZE": "2"}
    command = ("run", *INTERVAL, "--", sys.executable, str(script))
    async with (
        program("relay_agent", *command, env={**variables, "RELAY_RANK": "0"}, cwd=tmp_path) as first,
        program("relay_agent", *command, env={**variables, "RELAY_RANK": "1"}, cwd=tmp_path) as second,
    ):
        ends = [await first.finish(), await second.finish()]
    assert [(0, 1), (0, 0)] == [(end.status, end.stderr.count("no hybrid connection is set")) for end in ends]
    rows = rows_in(tmp_path)
    assert {"0", "1"} <= {row["rank"] for row in rows}
    times = [row["time"] for row in rows if row["what"] == "node"]
    assert len(times) == len(set(times))


async def test_local_runs_at_the_same_time(tmp_path: Path) -> None:
    """Two programs in directories of their own have files of their own, although both have rank 0."""
    directories = [tmp_path / name for name in ("one", "two")]
    variables = {"RELAY_NODE_DIR": str(tmp_path / "node")}
    async with contextlib.AsyncExitStack() as stack:
        jobs = []
        for directory in directories:
            directory.mkdir()
            (directory / "train.py").write_text(ITS_OWN_ROW)
            command = ("run", *INTERVAL, "--", sys.executable, "train.py")
            entered = stack.enter_async_context(program("relay_agent", *command, env=variables, cwd=directory))
            jobs.append(await entered)
        ends = [await job.finish() for job in jobs]
    assert [(0, [LOCAL])] * 2 == [(end.status, end.stderr.splitlines()) for end in ends]


SCRIPT = f"""\
import relay_agent

print(relay_agent.start_remote_debugging_from_args())
relay_agent.breakpoint()
{UNTIL_WRITTEN}"""


async def test_a_local_run_of_a_script(tmp_path: Path) -> None:
    """A script with `--is-debug true --debug-monitor` has its file; `breakpoint()` does not wait."""
    (tmp_path / "train.py").write_text(SCRIPT)
    node = {"RELAY_NODE_DIR": str(tmp_path / "node")}
    async with program("train", "--is-debug", "true", *INTERVAL, env=node, cwd=tmp_path) as job:
        finished = await job.finish()
    assert (0, "False\n", [LOCAL]) == (finished.status, finished.stdout, finished.stderr.splitlines())


@pytest.mark.parametrize(
    ("options", "variables"),
    [
        ((), {}),
        (("--debug-on-timeout", "abort", *INTERVAL), {}),
        (("--namespace", "ns", *INTERVAL), {}),
        (INTERVAL, {"RELAY_NAMESPACE": "ns"}),
    ],
)
async def test_a_forgotten_name(tmp_path: Path, options: tuple[str, ...], variables: dict[str, str]) -> None:
    """Without the monitor, or with a part of a relay's settings, a missing name is an error as before."""
    command = ("run", *options, "--", sys.executable, "-c", "print('started')")
    async with program("relay_agent", *command, env=variables, cwd=tmp_path) as job:
        finished = await job.finish()
    assert (2, "") == (finished.status, finished.stdout)
    assert "no hybrid connection given" in finished.stderr


async def until_none(node: Path) -> None:
    """Wait until no agent is left on a node."""
    while agents_on(node):
        await asyncio.sleep(0.02)


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=DEADLINE) as response:
        return str(response.read(), "utf-8")
