"""Facts about samples/kubernetes: what its manifests promise, and their very commands under a debugger."""

import asyncio
import contextlib
import itertools
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from relay_core.compat import timeout
from tests.samples.kit import (
    SAMPLES,
    Running,
    agent_settings,
    breakpoint_hit,
    client_of,
    environment,
    running,
)
from tests.support.azure.az_shim.kit import FakeAzure
from tests.support.machine import secrets
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.network.relay import LocalRelay

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

SAMPLE = SAMPLES / "kubernetes"
SOURCES = {"simulate": SAMPLE, "train": SAMPLES / "plain_python"}
"""The folders whose scripts the Dockerfile copies to /app."""


def manifest(name: str) -> dict:
    return yaml.safe_load((SAMPLE / f"{name}.yaml").read_text())


def pod(name: str) -> dict:
    return manifest(name)["spec"]["template"]["spec"]


def containers(name: str) -> list[dict]:
    return [*pod(name).get("initContainers", []), *pod(name)["containers"]]


both = pytest.mark.parametrize("name", ["in-process", "sidecar"])


@both
def test_nothing_comes_in(name):
    """No container opens a port, uses the node's network, or has a probe, which would brick debugpy's port."""
    for container in containers(name):
        assert not {"ports", "livenessProbe", "readinessProbe", "startupProbe"} & container.keys()
    assert not {"hostNetwork", "hostPID", "shareProcessNamespace"} & pod(name).keys()
    (document,) = yaml.safe_load_all((SAMPLE / f"{name}.yaml").read_text())
    assert "Job" == document["kind"]


@both
def test_confinement(name):
    """Every container runs as an ordinary user, on a read-only disk, with no rights to gain."""
    assert {
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    } == pod(name)["securityContext"]
    assert pod(name)["automountServiceAccountToken"] is False
    for container in containers(name):
        assert {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        } == container["securityContext"]
        assert "memory" in container["resources"]["limits"]


@both
def test_secret(name):
    """The connection string comes from a Secret, reaches one container only, and is on no command line."""
    holders = [container for container in containers(name) if "env" in container]
    assert 1 == len(holders)
    (variable,) = holders[0]["env"]
    assert "RELAY_CONNECTION_STRING" == variable["name"]
    reference = {"name": "relay-myhc-agent", "key": "connection-string"}
    assert {"secretKeyRef": reference} == variable["valueFrom"]
    assert "SharedAccessKey" not in (SAMPLE / f"{name}.yaml").read_text()


@both
def test_forgotten_jobs_end(name):
    """A job is not repeated, and ends automatically if everybody has forgotten it."""
    spec = manifest(name)["spec"]
    assert 0 == spec["backoffLimit"]
    assert 8 * 3600 == spec["activeDeadlineSeconds"]
    assert "Never" == pod(name)["restartPolicy"]


def test_the_sidecar_ends_with_the_job():
    """The agent is a sidecar in Kubernetes' sense, or the job would never be complete."""
    (agent,) = pod("sidecar")["initContainers"]
    assert "Always" == agent["restartPolicy"]


def test_network_policy():
    """The policy applies to both jobs, lets nothing in, and lets out DNS and 443 only."""
    policy = manifest("network-policy")["spec"]
    for name in ("in-process", "sidecar"):
        labels = manifest(name)["spec"]["template"]["metadata"]["labels"]
        assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert [] == policy["ingress"]
    assert {53, 443} == {port["port"] for port in itertools.chain(*(rule["ports"] for rule in policy["egress"]))}


def test_images():
    """Every image of the manifests is built by the Dockerfile, and its scripts are there to be copied."""
    dockerfile = (SAMPLE / "Dockerfile").read_text()
    for container in [*containers("in-process"), *containers("sidecar")]:
        image = container["image"].rpartition("/")[2].partition(":")[0]
        assert f"--target {image.removeprefix('relay-')} -t <registry>/{image}" in dockerfile
    copied = [line.split()[1] for line in dockerfile.splitlines() if line.startswith("COPY")]
    assert {"*.whl", "kubernetes/simulate.py", "plain_python/train.py"} == set(copied)
    assert all((SAMPLES / path).is_file() for path in copied if path != "*.whl")
    assert "python shared/build_wheel.py ." in dockerfile


KEEP = """#!/bin/sh
printf '%s\\n' "$@" >"{folder}/arguments"
cat >"{folder}/stdin"
"""
"""In place of kubectl, of which only what it is given matters here."""


def test_secret_out_of_the_vault(tmp_path):
    """The page's first command carries the string out of the vault on no command line, and without a line end."""
    (line,) = [line for line in (SAMPLE / "README.md").read_text().splitlines() if line.startswith("az keyvault")]
    with FakeAzure(tmp_path) as azure:
        vault = ["--key-vault", "contoso-kv", "-l", "westeurope"]
        made = azure.run("create_relay.sh", "-g", "debug-rg", "-n", "contoso-debug", "--hc", "myhc", *vault)
        assert 0 == made.code, made.err
        kubectl = azure.bin / "kubectl"
        kubectl.write_text(KEEP.format(folder=tmp_path))
        kubectl.chmod(0o755)
        command = ["bash", "-euo", "pipefail", "-c", line]
        done = subprocess.run(
            command, env=azure.environment(), capture_output=True, text=True, check=False, timeout=DEADLINE
        )
        stored = azure.secret("relay-myhc-agent")
    secrets._keys.update(azure.key_material())
    secrets.check(done.stdout, done.stderr, *azure.calls()[-1]["argv"])
    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
    assert stored == (tmp_path / "stdin").read_text()
    expected = ["create", "secret", "generic", "relay-myhc-agent", "--from-file=connection-string=/dev/stdin"]
    assert expected == (tmp_path / "arguments").read_text().splitlines()


@contextlib.asynccontextmanager
async def contained(
    container: dict, relay: LocalRelay, replaced: dict[str, str], folder: Path, **variables: str
) -> AsyncIterator[Running]:
    """Run a container's command on this machine, with `folder` as its working directory and some words replaced."""
    command = [replaced.get(word, word) for word in [*container["command"], *container.get("args", [])]]
    settings = agent_settings(relay) if "env" in container else {}
    async with running(*command, cwd=folder, env=environment(**settings, **variables)) as program:
        yield program


async def exists(path: Path) -> None:
    """Wait until a file is there."""
    async with timeout(DEADLINE):
        while not path.exists():  # noqa: ASYNC240 - one look at a local file
            await asyncio.sleep(0.02)


@pytest.mark.e2e
async def test_debug_the_in_process_job(relay):
    """The job of in-process.yaml stops at a breakpoint, through a relay."""
    port = free_port()
    (job,) = containers("in-process")
    folder = SOURCES["train"]
    async with (
        client_of(relay, port),
        contained(job, relay, {"5678": str(port)}, folder),
        breakpoint_hit(port, folder / "train.py", "loss -= math.log(", condition="epoch == 2") as stop,
    ):
        assert "2" == await stop.value("epoch")


@pytest.mark.e2e
async def test_debug_the_job_with_a_sidecar(relay, tmp_path):
    """The job of sidecar.yaml stops at a breakpoint, through its sidecar and a relay, and ends well.

    Here job, sidecar and relay-client share one machine, so debugpy gets another port than relay-client. The file is
    how debugpy reports that it listens; a connection to its port would make it unusable.
    """
    port, local, listening = free_port(), free_port(), tmp_path / "endpoints.json"
    agent, job = containers("sidecar")
    folder = SOURCES["simulate"]
    async with (
        client_of(relay, port),
        contained(agent, relay, {"5678": f"{port}:{local}"}, folder) as sidecar,
        contained(
            job,
            relay,
            {"127.0.0.1:5678": f"127.0.0.1:{local}"},
            folder,
            DEBUGPY_ADAPTER_ENDPOINTS=str(listening),
        ) as program,
    ):
        await sidecar.line("listening on 'myhc'")
        await exists(listening)
        async with breakpoint_hit(port, folder / "simulate.py", "return sum(") as stop:
            assert ("throw", "20000") == (await stop.function(), await stop.value("count"))
        assert 0 == await program.finish()
        assert "round 20: pi is about 3.14" in program.output
