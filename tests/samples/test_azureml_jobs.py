"""Facts about samples/azureml_jobs and any_image.yaml of samples/openpai: jobs in images without relay-debug."""

import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from relay_agent.azureml import Step, read_steps
from tests.samples.kit import (
    SAMPLES,
    Running,
    agent_settings,
    breakpoint_hit,
    client_of,
    environment,
    load,
    needs_sdk,
    running,
    wheel,
)
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.network.relay import LocalRelay

SAMPLE = SAMPLES / "azureml_jobs"
DEBUG = ("--is-debug", "true", "--debug-relay-connection-name", "myhc")

pytestmark = pytest.mark.xdist_group("azureml_jobs")


def dry_run(name: str, *arguments: str) -> dict[str, Any]:
    """Return what a sample prints."""
    done = subprocess.run(
        [sys.executable, f"{name}.py", "--dry-run", "--wheel", str(wheel()), *arguments],
        cwd=SAMPLE,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@needs_sdk
@pytest.mark.parametrize(
    ("name", "compute", "steps"),
    [
        ("any_image", "cpu-cluster", {"train": {}}),
        ("kubernetes", "k8s-compute", {"train": {"resources": {"instance_type": "defaultinstancetype"}}}),
        (
            "distributed",
            "cpu-cluster",
            {
                "mpi": {
                    "resources": {"instance_count": 2},
                    "distribution": {"distribution_type": "Mpi", "process_count_per_instance": 2},
                },
                "tensorflow": {
                    "resources": {"instance_count": 2},
                    "distribution": {
                        "distribution_type": "TensorFlow",
                        "worker_count": 2,
                        "parameter_server_count": 0,
                    },
                },
            },
        ),
    ],
)
def test_the_job(name: str, compute: str, steps: dict[str, Any]) -> None:
    """The SDK serializes distribution and resources of each step, and the failure of one step does not end others."""
    body = dry_run(name, *DEBUG)["properties"]
    assert (compute, True, True) == (
        body["computeId"], body["settings"]["continue_on_step_failure"], body["settings"]["force_rerun"],
    )  # fmt: skip
    shown = {
        step: {key: node[key] for key in ("resources", "distribution") if key in node}
        for step, node in body["jobs"].items()
    }
    assert steps == shown


@needs_sdk
def test_the_batch_endpoint() -> None:
    """The deployment refers to a pipeline component with the inputs of a debug run, and runs all steps."""
    made = dry_run("batch_endpoint")
    inputs = made["component"]["properties"]["componentSpec"]["inputs"]
    assert ["is_debug", "debug_relay_connection_name", "debug_relay_connection_string_secret"] == [*inputs]
    configuration = made["deployment"]["properties"]["deploymentConfiguration"]
    assert "PipelineComponent" == configuration["deploymentConfigurationType"]
    assert {"default_compute": "cpu-cluster", "force_rerun": True, "continue_on_step_failure": True} == (
        configuration["settings"]
    )


DEPLOY = """
import sys
from types import SimpleNamespace
import batch_endpoint

class Client:
    def __getattr__(self, name):
        return self
    def create_or_update(self, component):
        print("component", component.name)
        return "azureml:pi:1"
    def begin_create_or_update(self, made):
        print(type(made).__name__, made.name, getattr(made, "component", ""))
        return SimpleNamespace(result=lambda: made)
    def invoke(self, *, endpoint_name, deployment_name, inputs):
        values = {name: given.default for name, given in inputs.items()}
        return SimpleNamespace(name=f"run of {endpoint_name} {deployment_name} {values}")

batch_endpoint.connect = Client
sys.exit(batch_endpoint.main())
"""


@needs_sdk
def test_a_debug_run_of_the_batch_endpoint() -> None:
    """Component, endpoint and deployment are created, and the deployment is invoked with the inputs of a debug run."""
    done = subprocess.run(
        [sys.executable, "-c", DEPLOY, "--wheel", str(wheel()), *DEBUG],
        cwd=SAMPLE, env=environment(), capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert [
        "component pi",
        "BatchEndpoint pi-batch ",
        "PipelineComponentBatchDeployment pi azureml:pi:1",
        "run of pi-batch pi {'is_debug': True, 'debug_relay_connection_name': 'myhc'}",
    ] == done.stdout.splitlines(), done.stderr


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of programs in a new virtual environment, which has our dependencies, but not relay-debug.

    pip gets no index, so it cannot take anything from one.
    """
    folder = tmp_path_factory.mktemp("image")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True, timeout=DEADLINE)
    packages = folder / "packages"
    packages.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "relay_debug" not in path.name and not path.name.startswith(("__editable__", "pip")):
            (packages / path.name).symlink_to(path)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (site / "image.pth").write_text(f"{packages}\n")
    programs = environment(PIP_NO_INDEX="1", PIP_DISABLE_PIP_VERSION_CHECK="1")
    del programs["PYTHONPATH"]
    return programs | {"PATH": f"{folder / 'venv' / 'bin'}:{programs['PATH']}"}


def code_folder(script: Path, folder: Path) -> Path:
    """Return the code folder of a step, with the wheel."""
    folder.mkdir()
    shutil.copy(script, folder / "train.py")
    shutil.copy(wheel(), folder)
    return folder


@asynccontextmanager
async def started(command: str, cwd: Path, variables: Mapping[str, str]) -> AsyncIterator[Running]:
    """Run a command line as a shell does."""
    async with running("bash", "-euc", command, cwd=cwd, env=variables) as program:
        yield program


RANKS = {
    "mpi": {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1"},
    "tensorflow": {
        "TF_CONFIG": json.dumps({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}})
    },
}


@needs_sdk
@pytest.mark.e2e
@pytest.mark.parametrize("name", ["mpi", "tensorflow"])
async def test_the_ports_of_ranks(relay: LocalRelay, tmp_path: Path, image: Mapping[str, str], name: str) -> None:
    """The command as printed installs the wheel, and rank 1 of each step has the second port of the step."""
    (step,) = [each for each in read_steps(dry_run("distributed", *DEBUG)) if each.name == name]
    code = code_folder(SAMPLE / "code" / "train.py", tmp_path / "code")
    variables = {**image, **agent_settings(relay), **RANKS[name], "RELAY_NODE_DIR": str(tmp_path / "node")}
    async with started(step.expand(step.values, {}), code, variables) as job:
        await job.line(f"rank 1: a debugger can attach on port {step.ports[0] + 1} ('myhc')")
        await job.line(": pi is about 3.1")
        assert 0 == await job.finish()


@needs_sdk
@pytest.mark.e2e
@pytest.mark.parametrize("name", ["any_image", "kubernetes", "batch_endpoint"])
async def test_debug_a_step(relay: LocalRelay, tmp_path: Path, image: Mapping[str, str], name: str) -> None:
    """The command as printed installs the wheel in an environment without relay-debug, and stops at a breakpoint."""
    step = step_of(dry_run(name, *DEBUG))
    port = free_port()
    values = {**step.values, "is_debug": "True", "debug_relay_connection_name": "myhc", "debug_port": str(port)}
    code = code_folder(SAMPLE / "code" / "train.py", tmp_path / "code")
    variables = {**image, **agent_settings(relay), "RELAY_NODE_DIR": str(tmp_path / "node")}
    async with client_of(relay, port), started(step.expand(values, {}), code, variables) as job:
        async with breakpoint_hit(port, code / "train.py", "return 4 * inside / points") as stop:
            assert ("estimate", "100000") == (await stop.function(), await stop.value("points"))
        assert 0 == await job.finish()


def step_of(body: dict[str, Any]) -> Step:
    """Return the one step of a job, or of a pipeline component."""
    if "component" in body:
        body = {"properties": {"jobs": body["component"]["properties"]["componentSpec"]["jobs"]}}
    (step,) = read_steps(body)
    return step


@pytest.mark.e2e
async def test_any_image_on_openpai(relay: LocalRelay, tmp_path: Path, image: Mapping[str, str]) -> None:
    """The commands of any_image.yaml install the wheel beside the script, and its task stops at a breakpoint."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    (role,) = yaml.safe_load((SAMPLES / "openpai" / "any_image.yaml").read_text())["taskRoles"].values()
    code = code_folder(SAMPLES / "container" / "train.py", tmp_path / "train")
    port, settings = free_port(), agent_settings(relay)
    script = "\n".join(role["commands"]).replace("/mnt/<storage>/train", str(code))
    script = script.replace("<% $secrets.relay %>", settings.pop("RELAY_CONNECTION_STRING"))
    variables = {**image, **settings, "RELAY_NODE_DIR": str(tmp_path / "node"), "RELAY_DEBUG_PORT": str(port)}
    async with client_of(relay, port), started(script, code, variables) as job:
        async with breakpoint_hit(port, code / "train.py", "return (guess") as stop:
            assert "3.0" == await stop.value("number")
        assert 0 == await job.finish()


def test_the_code_folder(tmp_path: Path) -> None:
    """What is sent as code is the step's files and the wheel, without an older wheel."""
    pytest.importorskip("azure.ai.ml", reason="azure-ai-ml is not installed")
    sys.path.append(str(SAMPLES / "shared"))
    try:
        jobs = load(SAMPLES / "shared" / "azureml_jobs.py")
    finally:
        sys.path.remove(str(SAMPLES / "shared"))
    (tmp_path / "code").mkdir()
    for name in ("train.py", "relay_debug-0.0.1-py3-none-any.whl"):
        (tmp_path / "code" / name).touch()
    made = jobs.code_with_wheel(tmp_path / "code", tmp_path / "sent", wheel())
    assert sorted(["train.py", wheel().name]) == sorted(path.name for path in made.iterdir())
