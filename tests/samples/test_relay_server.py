"""Facts about the service files of relay-server: README's commands run here, and the manifest's command serves."""

import asyncio
import contextlib
import http.client
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.samples.kit import SAMPLES, environment, running
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

SAMPLE = SAMPLES / "relay_server"
README = (SAMPLE / "README.md").read_text()
DEPLOYMENT, SERVICE = yaml.safe_load_all((SAMPLE / "relay.yaml").read_text())
POD = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
"""The relay's container."""
(MOUNT,) = CONTAINER["volumeMounts"]
UNIT = SAMPLE / "relay-server.service"


def commands(title: str) -> list[str]:
    """Return the shell blocks of a section of the README."""
    section = README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^```sh\n((?:.*\n)*?)```$", section, re.MULTILINE)


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """The files of the Secret that README's commands make."""
    configure, create = commands("Kubernetes")
    subprocess.run(["sh", "-euc", configure], cwd=tmp_path, env=environment(), check=True, timeout=DEADLINE)
    folder = tmp_path / "mounted"
    folder.mkdir()
    for file in re.findall(r"--from-file=(\S+)", create):
        shutil.copy(tmp_path / file, folder)
    return folder


def status_of(port: int, path: str) -> int:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)) as connection:
        connection.request("GET", path)
        return connection.getresponse().status


@pytest.mark.e2e
async def test_manifest_serves_the_files_of_readme(mounted):
    """The container's command, with the files of the Secret that README makes, is ready, and answers its probe."""
    configuration = mounted / "relay.toml"
    text = configuration.read_text()
    assert 2 == text.count('bind = "0.0.0.0"\n')
    chosen = {}
    for port in CONTAINER["ports"]:
        line, chosen[port["name"]] = f"port = {port['containerPort']}\n", free_port()
        assert 1 == text.count(line)
        text = text.replace(line, f"port = {chosen[port['name']]}\n")
    configuration.write_text(text)
    before = sorted(mounted.iterdir())
    arguments = [word.replace(MOUNT["mountPath"], str(mounted)) for word in CONTAINER["args"]]
    async with running("relay-server", *arguments, cwd=mounted.parent, env=environment()) as relay:
        await relay.line("relay-server: ready on wss://relay.example.com")
        probe = CONTAINER["readinessProbe"]["httpGet"]
        assert 200 == await asyncio.to_thread(status_of, chosen[probe["port"]], probe["path"])
    assert before == sorted(mounted.iterdir())  # a Secret cannot be written


def test_manifest_is_confined():
    """The container runs as an ordinary user on a read-only disk, and only the relay's port leaves the cluster."""
    user = {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 1000}
    assert {**user, "seccompProfile": {"type": "RuntimeDefault"}} == POD["securityContext"]
    assert POD["automountServiceAccountToken"] is False
    assert {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    } == CONTAINER["securityContext"]
    assert MOUNT["readOnly"] is True
    assert ["relay"] == [port["targetPort"] for port in SERVICE["spec"]["ports"]]
    assert DEPLOYMENT["spec"]["selector"]["matchLabels"] == SERVICE["spec"]["selector"]


def test_manifest_and_image_agree():
    """One relay runs at a time, is given longer than its shutdown takes, and has the command of the image."""
    assert (1, {"type": "Recreate"}) == (DEPLOYMENT["spec"]["replicas"], DEPLOYMENT["spec"]["strategy"])
    assert POD["terminationGracePeriodSeconds"] > 5
    dockerfile = (SAMPLE / "Dockerfile").read_text()
    assert str(CONTAINER["args"]).replace("'", '"') in dockerfile
    assert "[server,fast]" in dockerfile
    assert "relay-server" == CONTAINER["image"].rpartition("/")[2].partition(":")[0]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_unit_is_valid(tmp_path):
    """Systemd accepts the unit, once its program and its user exist."""
    command = f"{sys.executable} -m relay_server"
    text = UNIT.read_text().replace("/opt/relay-debug/bin/relay-server", command).replace("User=relay", "User=root")
    (tmp_path / UNIT.name).write_text(text)
    arguments = ["systemd-analyze", "verify", "--man=no", str(tmp_path / UNIT.name)]
    found = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=DEADLINE)
    assert (0, "") == (found.returncode, "".join(line for line in found.stderr.splitlines() if UNIT.name in line))


def test_unit_and_readme_agree():
    """README puts the program, the configuration and the user where the unit expects them."""
    (install,) = commands("systemd")
    command = re.search(r"^ExecStart=(\S+) serve --config (\S+)$", UNIT.read_text(), re.MULTILINE)
    assert command is not None
    assert f"{command[1]} init {command[2].rpartition('/')[0]} " in install
    assert "useradd --system relay\n" in install
