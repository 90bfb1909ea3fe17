"""Facts about samples/container: what its Dockerfile starts runs here as processes, with the page's `docker run` lines.

Docker is not used here. `container` does of `docker run` what a program can see: ENTRYPOINT and CMD, or the command
behind the image's name; ENV and then `-e`; and a folder with the files that are copied into the image.
"""

import argparse
import contextlib
import json
import shlex
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from tests.samples.kit import (
    SAMPLES,
    Running,
    agent_settings,
    breakpoint_hit,
    client_of,
    commands,
    environment,
    on_ports,
    running,
)
from tests.support.machine.ports import free_port
from tests.support.network.relay import LocalRelay

SAMPLE = SAMPLES / "container"
SCRIPT = SAMPLE / "train.py"
PAGE = commands(SAMPLE / "README.md")
WHEEL, BUILD, ORDINARY, DEBUG, CLIENT, OTHER, SECRET, VARIABLE, ON, OFF, EXEC, INSTALL, LOCAL = PAGE
LINES = [line for line in (SAMPLE / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")]
WHEEL_COPIED = "COPY *.whl /image/"
IMAGE = dict(line.split(maxsplit=1) for line in LINES)
ENTRYPOINT, CMD = json.loads(IMAGE["ENTRYPOINT"]), json.loads(IMAGE["CMD"])
ENV = dict(word.split("=", 1) for word in shlex.split(IMAGE["ENV"]))


def docker_run(line: list[str]) -> argparse.Namespace:
    """Read a `docker run` line as Docker does."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--rm", action="store_true")
    parser.add_argument("-e", action="append", default=[], dest="variables")
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    assert ["docker", "run"] == line[:2]
    return parser.parse_args(line[2:])


def given(variables: list[str], shell: Mapping[str, str]) -> dict[str, str]:
    """Return what `-e` hands over; without a value it is that of the shell."""
    pairs = (variable.partition("=") for variable in variables)
    return {name: value if equals else shell[name] for name, equals, value in pairs}


@contextlib.asynccontextmanager
async def container(command: list[str], folder: Path, variables: Mapping[str, str]) -> AsyncIterator[Running]:
    """Run a command as a process of the image."""
    for line in LINES:
        if line.startswith("COPY ") and line != WHEEL_COPIED:
            shutil.copy(SAMPLE / line.split()[1], folder)
    async with running(*command, cwd=folder, env=environment(**ENV | variables)) as process:
        yield process


def test_wheel():
    """The page's first command puts the wheel where the Dockerfile copies it from, and the image installs that file."""
    program, script, folder = WHEEL
    assert ("python", ".") == (program, folder)
    assert (SAMPLE / script).resolve() == SAMPLES / "shared" / "build_wheel.py"
    assert [WHEEL_COPIED, "RUN pip install --no-cache-dir /image/*.whl"] == LINES[1:3]


def test_image():
    """The image opens no port and runs as an ordinary user."""
    assert "EXPOSE" not in IMAGE
    assert "1000" == IMAGE["USER"]


def test_names_of_the_page():
    """The page builds the image that it runs, and none of its commands holds a secret."""
    assert "train" == BUILD[BUILD.index("-t") + 1] == docker_run(ORDINARY).image == docker_run(DEBUG).image
    assert "RELAY_CONNECTION_STRING" in docker_run(DEBUG).variables


def test_variable_from_the_secret():
    """`oc set env` makes the agent's variable of the secret's key: upper case, `-` becomes `_`, behind the prefix."""
    name = SECRET[4]
    key = SECRET[-1].removeprefix("--from-file=").partition("=")[0]
    assert f"--from=secret/{name}" in VARIABLE
    (prefix,) = [word.removeprefix("--prefix=") for word in VARIABLE if word.startswith("--prefix=")]
    assert "RELAY_CONNECTION_STRING" == prefix + key.replace("-", "_").upper()


def test_on_and_off():
    """The line that turns debugging on sets what the image turns off, and to the value that `docker run` sets."""
    assert ON[-1] in docker_run(DEBUG).variables
    name = ON[-1].partition("=")[0]
    assert (f"{name}-", "off") == (OFF[-1], ENV[name])


@pytest.mark.e2e
async def test_ordinary_run(tmp_path):
    """An ordinary run of the image needs no variable, and is the program and nothing else."""
    options = docker_run(ORDINARY)
    assert ([], []) == (options.variables, options.command)
    async with container([*ENTRYPOINT, *CMD], tmp_path, {}) as job:
        assert 0 == await job.finish()
    assert [f"step {step}" for step in range(1, 21)] == [line.partition(":")[0] for line in job.output.splitlines()]


@pytest.mark.e2e
async def test_status_of_another_command(relay, tmp_path):
    """A command behind the image's name takes the place of CMD, and its status is the container's."""
    options = docker_run([*DEBUG, "python", "-c", "raise SystemExit(7)"])
    variables = given(options.variables, shell=agent_settings(relay))
    async with container([*ENTRYPOINT, *options.command], tmp_path, variables) as job:
        assert 7 == await job.finish()


def debug_runs(relay: LocalRelay) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Return command and variables of the page's debug runs; a pod has the variable of the secret already."""
    shell = agent_settings(relay)
    options = docker_run(DEBUG)
    return {
        "docker run": ([*ENTRYPOINT, *CMD], given(options.variables, shell)),
        "docker run, another number": ([*ENTRYPOINT, *docker_run(OTHER).command], given(options.variables, shell)),
        "oc set env": ([*ENTRYPOINT, *CMD], given([ON[-1], "RELAY_CONNECTION_STRING"], shell)),
        "oc exec": (EXEC[EXEC.index("--") + 1 :], given(["RELAY_CONNECTION_STRING"], shell)),
    }


@pytest.mark.e2e
@pytest.mark.parametrize("how", ["docker run", "docker run, another number", "oc set env", "oc exec"])
async def test_debug_run(how, relay, tmp_path):
    """A debug run stops at a breakpoint, through a relay, with the mapping of launch.json, and ends well."""
    port = free_port()
    command, variables = debug_runs(relay)[how]
    variables |= {"RELAY_CA_FILE": str(relay.ca_file), "RELAY_DEBUG_PORT": str(port)}
    (configuration,) = json.loads((SAMPLE / ".vscode" / "launch.json").read_text())["configurations"]
    root = configuration["pathMappings"][0]["remoteRoot"]
    async with client_of(relay, port), container(command, tmp_path, variables) as job:
        async with breakpoint_hit(port, SCRIPT, "return (guess", remote_root=root) as stop:
            number = "3.0" if how.endswith("another number") else "2.0"
            assert ("improve", number) == (await stop.function(), await stop.value("number"))
        assert 0 == await job.finish()


@pytest.mark.e2e
async def test_without_docker():
    """What the page runs without Docker is what the image runs, and stops at a breakpoint."""
    assert [*ENTRYPOINT, *CMD] == LOCAL[LOCAL.index("--") + 1 :]
    port = free_port()
    async with running(*on_ports(LOCAL, port), cwd=SAMPLE, env=environment()) as job:
        await job.line("The job: relay-agent run")
        async with breakpoint_hit(port, SCRIPT, "return (guess") as stop:
            assert "2.0" == await stop.value("quotient")
        assert 0 == await job.finish()
