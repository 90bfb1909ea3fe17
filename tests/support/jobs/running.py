"""What users start, on loopback: a job under `relay-agent run`, and a relay-client for it."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import psutil

from relay_core.compat import timeout
from tests.support.jobs.processes import end_family
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.programs import Program, program, run
from tests.support.network.relay import HC, LocalRelay

__all__ = [
    "access",
    "agents_on",
    "ranks_launcher",
    "running_client",
    "running_job",
    "running_ranks",
    "until_listed",
    "until_registered",
]


def access(relay: LocalRelay, directory: Path, rule: str, **extra: str) -> dict[str, str]:
    """Return the environment of a program that may `listen` or `send`, with a node of its own in `directory`."""
    return {
        "RELAY_CONNECTION_STRING_FILE": str(relay.connection_file(directory, rule)),
        "RELAY_CA_FILE": str(relay.ca_file),
        "RELAY_NODE_DIR": str(directory / "node"),
        **extra,
    }


def agents_on(node: Path) -> list[psutil.Process]:
    """Return the agents of a node that are running, or just starting."""
    running = psutil.process_iter(["cmdline"])
    return [process for process in running if str(node) in (process.info["cmdline"] or [])]


@contextlib.asynccontextmanager
async def running_job(
    relay: LocalRelay,
    script: Path,
    *options: str,
    arguments: Sequence[str] = (),
    launcher: Sequence[str] = (),
    cwd: Path | None = None,
    **variables: str,
) -> AsyncIterator[Program]:
    """Run a script under `relay-agent run`; whatever is left of it at the end of the block is killed.

    Args:
        relay: To listen on.
        script: What to run; the node's directory is beside it.
        options: Of `relay-agent run`.
        arguments: Of the script.
        launcher: What starts the script instead of this Python.
        cwd: Its working directory, if not this one.
        variables: More of its environment.
    """
    command = [*(launcher or [sys.executable]), str(script), *arguments]
    environment = access(relay, script.parent, "listen", **variables)
    async with program("relay_agent", "run", "--hc", HC, *options, "--", *command, env=environment, cwd=cwd) as job:
        try:
            yield job
        finally:
            await end_family(job.process.pid)


def ranks_launcher(number: int) -> list[str]:
    """Return a launcher for `running_job` that runs the script as ranks 0 to `number` - 1, and waits for them."""
    rank = f'RELAY_WORLD_SIZE={number} RELAY_RANK=$rank {sys.executable} "$1"'
    return ["sh", "-c", f"for rank in $(seq 0 {number - 1}); do {rank} & done; wait", "sh"]


@contextlib.asynccontextmanager
async def running_ranks(relay: LocalRelay, script: Path, number: int, *options: str) -> AsyncIterator[None]:
    """Run a script as several ranks; the block begins when each has made `ready-RANK`, and a client finds them."""
    async with running_job(relay, script, "--debug-ranks", "none", *options, launcher=ranks_launcher(number)):
        while not all((script.parent / f"ready-{rank}").exists() for rank in range(number)):
            await asyncio.sleep(0.05)
        await until_registered(relay, script.parent, number)
        yield


@contextlib.asynccontextmanager
async def running_client(
    relay: LocalRelay, directory: Path, *arguments: str, **variables: str
) -> AsyncIterator[Program]:
    """Run a relay-client; the block begins when its ports are open."""
    environment = access(relay, directory, "send", **variables)
    async with program("relay_client", "--hc", HC, *arguments, env=environment) as client:
        await client.line("ready on")
        yield client


def step_arguments(port: int, *more: str) -> list[str]:
    """Return the arguments of a script that `start_remote_debugging_from_args` reads."""
    return ["--is-debug", "true", "--debug-relay-connection-name", HC, "--debug-port", str(port), *more]


async def until_registered(relay: LocalRelay, directory: Path, ranks: int) -> None:
    """Wait until a client finds all ranks of a job, which run before their agent listens."""
    client = access(relay, directory, "send")
    waited = await run("relay_client", "--hc", HC, "wait", "--ranks", f"0-{ranks - 1}", env=client)
    assert 0 == waited.status, waited.stderr


async def until_listed(relay: LocalRelay, directory: Path, text: str) -> None:
    """Wait until the table of `targets` shows a text, such as a rank's state."""
    client = access(relay, directory, "send")
    async with timeout(DEADLINE):
        while text not in (await run("relay_client", "--hc", HC, "targets", env=client)).stdout:
            pass
