"""Facts about runs in a real MLflow server: the tag of a waiting job, its address, and its curves in TensorBoard."""

import asyncio
import contextlib
import json
import os
import signal
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from relay_client.dap import DapClient
from relay_core.compat import timeout
from tests.support.jobs.running import access, running_client, running_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.mlflow import PYTHON, ROOT, MlflowServer, mlflow_server, needs_mlflow
from tests.support.machine.ports import free_port
from tests.support.machine.programs import program, run
from tests.support.network.relay import HC, LocalRelay

pytestmark = [pytest.mark.e2e, needs_mlflow, pytest.mark.xdist_group("mlflow")]

JOB = "import sys, time\nwhile not __import__('os').path.exists(sys.argv[1]): time.sleep(0.05)\n"
WORKSPACE = {
    "AZUREML_ARM_SUBSCRIPTION": "11111111-2222-3333-4444-555555555555",
    "AZUREML_ARM_RESOURCEGROUP": "ml-rg",
    "AZUREML_ARM_WORKSPACE_NAME": "contoso-ml",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    with mlflow_server(tmp_path_factory.mktemp("mlflow")) as found:
        yield found


async def test_a_waiting_rank_is_a_tag_of_its_run(relay: LocalRelay, tmp_path: Path, server: MlflowServer) -> None:
    """While the rank waits, the run has the command that attaches; targets and status show the run and its page."""
    script, port = tmp_path / "train.py", free_port()
    script.write_text(JOB)
    end = tmp_path / "end"
    number = await server.create_run("careful_pear")
    variables = {"MLFLOW_TRACKING_URI": server.url, "AZUREML_RUN_ID": number, **WORKSPACE}
    job = running_job(relay, script, "--port", str(port), launcher=[str(PYTHON)], arguments=[str(end)], **variables)
    async with job as running, running_client(relay, tmp_path, "--ports", str(port)) as client:
        command = f"relay-client --hc {HC} --ports {port}"
        await tags_become(server, number, {"relay_debug_attach": command})
        page = f"https://ml.azure.com/runs/{number}?wsid=/subscriptions/{WORKSPACE['AZUREML_ARM_SUBSCRIPTION']}"
        page += "/resourcegroups/ml-rg/workspaces/contoso-ml"
        if page not in client.stderr:  # the agent may have been found before the ports were open
            await client.line("https://ml.azure.com")
        assert f"run {number}: {page}" in client.stderr
        looks = access(relay, tmp_path, "send")
        table = (await run("relay_client", "--hc", HC, "targets", env=looks)).stdout
        assert f"run {number}: {page}" == table.splitlines()[-1]
        found = json.loads((await run("relay_client", "--hc", HC, "status", "--json", env=looks)).stdout)
        assert page in json.dumps(found)
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as dap:
            await dap.attach({}, within=DEADLINE)
            await tags_become(server, number, {})
            await dap.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        end.touch()
        assert 0 == (await running.finish()).status


async def test_the_monitor_logs_metrics_of_the_run(relay: LocalRelay, tmp_path: Path, server: MlflowServer) -> None:
    """Node and rank have their curves in the run, one value for each sample; nobody debugs the job."""
    script, end = tmp_path / "train.py", tmp_path / "end"
    script.write_text(JOB)
    number = await server.create_run("nice_melon")
    variables = {"MLFLOW_TRACKING_URI": server.url, "MLFLOW_RUN_ID": number}
    options = ("--debug-ranks", "none", "--debug-monitor", "0.5s")
    job = running_job(
        *(relay, script, *options), launcher=[str(PYTHON)], arguments=[str(end)], cwd=tmp_path, **variables
    )
    async with job as running:
        names = {"system/node_0/cpu_utilization_percentage", "system/node_0/rank_0/memory_usage_megabytes"}
        async with timeout(DEADLINE):
            while not names <= {each["key"] for each in await metrics(server, number)}:
                await asyncio.sleep(0.2)
        memory = next(
            each for each in await metrics(server, number) if each["key"].endswith("rank_0/memory_usage_megabytes")
        )
        assert 1 < memory["value"] < 1000
        assert memory["step"] >= 1
        end.touch()
        assert 0 == (await running.finish()).status


async def test_a_local_run_logs_metrics(tmp_path: Path, server: MlflowServer) -> None:
    """Without a relay, the run has the same metrics."""
    script, end = tmp_path / "train.py", tmp_path / "end"
    script.write_text(JOB)
    number = await server.create_run("ripe_plum")
    variables = {"MLFLOW_TRACKING_URI": server.url, "MLFLOW_RUN_ID": number, "RELAY_NODE_DIR": str(tmp_path / "node")}
    command = ("run", "--debug-monitor", "0.5s", "--", str(PYTHON), str(script), str(end))
    async with program("relay_agent", *command, env=variables, cwd=tmp_path) as running:
        async with timeout(DEADLINE):
            while not any("rank_0" in each["key"] for each in await metrics(server, number)):
                await asyncio.sleep(0.2)
        end.touch()
        assert 0 == (await running.finish()).status


async def metrics(server: MlflowServer, number: str) -> list[dict[str, Any]]:
    """Return the latest metrics of a run."""
    found = await asyncio.to_thread(server.call, f"runs/get?run_id={number}")
    latest: list[dict[str, Any]] = found["run"]["data"].get("metrics", [])
    return latest


WRITES = """\
import sys, time
from pathlib import Path
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

writer = EventFileWriter(sys.argv[1])
for step in range(1_000_000):
    value = Summary.Value(tag="loss", simple_value=1 / (step + 1))
    writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=[value])))
    writer.flush()
    if Path(sys.argv[2]).exists():
        break
    time.sleep(0.1)
"""


async def test_one_tensorboard_shows_all_runs(relay: LocalRelay, tmp_path: Path, server: MlflowServer) -> None:
    """It shows a running job, whose curve grows, and a run that has ended; no other file of the job is copied."""
    script, end, copies, port = tmp_path / "train.py", tmp_path / "end", tmp_path / "copies", free_port()
    script.write_text(WRITES)
    running, ended, failed = [await server.create_run(name) for name in ("pear", "plum", "fig")]
    options = ("--debug-ranks", "none", "--debug-tensorboard", "runs")
    variables = {"AZUREML_RUN_ID": running}
    job = running_job(
        *(relay, script, *options), launcher=[str(PYTHON)], arguments=["runs/a", str(end)], cwd=tmp_path, **variables
    )
    async with job as work:
        (original,) = await event_files(tmp_path / "runs", 1)
        content = original.read_bytes()
        for number, status in ((ended, "FINISHED"), (failed, "FAILED")):
            files = {f"logs/{original.name}": content, "model.pt": b"weights"}
            await asyncio.to_thread(server.end_run, number, files, status)
        client = access(relay, tmp_path, "send", MLFLOW_TRACKING_URI=server.url)
        command = ("tensorboard", "--hc", HC, "--runs", "all", "--logdir", str(copies), "--port", str(port))
        async with program("relay_client", *command, env=client, python=PYTHON) as shown:
            url = (await shown.process.stdout.readline()).decode()
            assert f"http://127.0.0.1:{port}/\n" == url, (await shown.finish()).stderr
            two = await answer(port, "/data/runs", lambda runs: len(runs) == 2)
            (live,) = [name for name in two if name.startswith(running)]
            (past,) = [name for name in two if name != live]
            assert past.startswith(f"plum_{ended}")
            query = f"/data/plugin/scalars/scalars?run={urllib.parse.quote(live)}&tag=loss"
            first = await answer(port, query, lambda points: len(points) > 1)
            await answer(port, query, lambda points: len(points) > len(first))
            shown.process.send_signal(signal.SIGINT)
            assert 0 == (await shown.finish()).status
        end.touch()
        assert 0 == (await work.finish()).status
    names = {path.name for path in copies.rglob("*") if path.is_file()}
    assert {original.name} == names


async def test_runs_of_an_experiment(tmp_path: Path, server: MlflowServer) -> None:
    """An experiment selects its runs, and filters their states; the event files in all folders are downloaded."""
    experiment = server.call("experiments/create", name="circle")["experiment_id"]
    runs = {state: await server.create_run(state, experiment) for state in ("FINISHED", "FAILED")}
    await server.create_run("elsewhere")
    for state, number in runs.items():
        server.end_run(number, {"a/b/events.out.tfevents.1": b"x", "model.pt": b"y"}, state, experiment)
    code = (
        "import sys; from pathlib import Path; from relay_client.tensorboard.server import *\n"
        "from relay_client.tensorboard.selection import parse_selection\n"
        "for run, name, status in find_runs(parse_selection(None, 'circle', 'Failed')):\n"
        "    print(run, name, status, download_ended(run, name, Path(sys.argv[1])))\n"
    )
    variables = {"MLFLOW_TRACKING_URI": server.url, "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(
        *(PYTHON, "-c", code, str(tmp_path)), stdout=asyncio.subprocess.PIPE, env={**os.environ, **variables}
    )
    output, _ = await asyncio.wait_for(process.communicate(), DEADLINE)
    assert f"{runs['FAILED']} FAILED FAILED 1\n" == output.decode()
    (copy,) = [path for path in tmp_path.rglob("*") if path.is_file()]  # noqa: ASYNC240 - after the program
    assert ("events.out.tfevents.1", f"FAILED_{runs['FAILED']}") == (copy.name, copy.parents[2].name)


async def event_files(directory: Path, count: int) -> list[Path]:
    """Wait until a directory has event files with content."""
    async with timeout(DEADLINE):
        while len(found := with_content(directory)) < count:
            await asyncio.sleep(0.1)
    return found


def with_content(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("events*") if path.stat().st_size > 100]


async def answer(port: int, path: str, is_expected: Callable[[Any], bool]) -> Any:
    """Ask TensorBoard until the answer is as expected."""
    async with timeout(DEADLINE):
        while True:
            with contextlib.suppress(OSError):
                found = json.loads(await asyncio.to_thread(load, f"http://127.0.0.1:{port}{path}"))
                if is_expected(found):
                    return found
            await asyncio.sleep(0.2)


def load(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=DEADLINE) as response:
        return response.read()


async def tags_become(server: MlflowServer, run_id: str, expected: dict[str, str]) -> None:
    """Wait until a run has these tags."""
    async with timeout(DEADLINE):
        while expected != await server.tags(run_id):
            await asyncio.sleep(0.1)
