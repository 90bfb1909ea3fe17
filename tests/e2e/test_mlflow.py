"""Facts about runs in a real MLflow server: the tag of a waiting job, and its address."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay_client.dap.client import DapClient
from relay_core.compat import timeout
from tests.support.mlflow import PYTHON, MlflowServer, mlflow_server, needs_mlflow
from tests.support.ports import free_port
from tests.support.programs import run
from tests.support.relay import HC, LocalRelay
from tests.support.run_job import access, running_client, running_job

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
        assert f"run {number}: {page}" in await client.line("https://ml.azure.com")
        looks = access(relay, tmp_path, "send")
        table = (await run("relay_client", "--hc", HC, "targets", env=looks)).stdout
        assert f"run {number}: {page}" == table.splitlines()[-1]
        found = json.loads((await run("relay_client", "--hc", HC, "status", "--json", env=looks)).stdout)
        assert page in json.dumps(found)
        async with await DapClient.connect("127.0.0.1", port) as dap:
            await dap.attach({}, within=60)
            await tags_become(server, number, {})
            await dap.request("disconnect", {"terminateDebuggee": False}, within=60)
        end.touch()
        assert 0 == (await running.finish()).status


async def tags_become(server: MlflowServer, run_id: str, expected: dict[str, str]) -> None:
    """Wait until a run has these tags."""
    async with timeout(90):
        while expected != await server.tags(run_id):
            await asyncio.sleep(0.1)
