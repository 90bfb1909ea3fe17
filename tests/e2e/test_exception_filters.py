"""Facts about the exception filters of an editor, for every way in which a job is started and attached to."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from relay_client.agents.tunnels import Tunnels
from relay_client.dap import DapClient
from relay_client.ports.forwarder import Forwarder
from tests.support.editors.listening import listening_editor
from tests.support.jobs.processes import ROOT
from tests.support.jobs.running import access
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import environment
from tests.support.network.relay import HC, LocalRelay

pytestmark = pytest.mark.e2e

PROGRAM = """\
import time
from pathlib import Path

import relay_agent

def train(step):
    loss = 1 / step
    return loss

relay_agent.start_remote_debugging_from_args()
while not Path(__file__).with_name("crash").exists():
    time.sleep(0.01)
train(0)
"""
RAISES = ("train", PROGRAM.splitlines().index("    loss = 1 / step") + 1)
NEVER = PROGRAM.splitlines().index("    return loss") + 1
PASSES_ON = ("<module>", PROGRAM.splitlines().index("train(0)") + 1)

FILTERS = {"raised": [RAISES, PASSES_ON], "uncaught": [RAISES], "userUnhandled": [RAISES]}
"""Where the exception of PROGRAM stops the job, by filter; the same as under debugpy alone."""
COMMANDS = {
    "script": ("{directory}/__main__.py",),
    "directory": ("{directory}",),
    "module": ("-m", "job"),
    "library": ("{directory}/__main__.py", "--is-debug", "true", "--debug-relay-connection-name", HC),
}


with_each_filter = pytest.mark.parametrize("filter_", FILTERS)


@with_each_filter
@pytest.mark.parametrize("command", COMMANDS)
async def test_waiting_job(relay: LocalRelay, tmp_path: Path, command: str, filter_: str) -> None:
    """A job that waited for its debugger stops at its exception, whatever its command line and the filter."""
    port = free_port()
    async with running(relay, tmp_path, COMMANDS[command], port), attached_editor(relay, port, filter_) as editor:
        assert FILTERS[filter_] == await stops(editor, tmp_path / "job")


@with_each_filter
async def test_running_job(relay: LocalRelay, tmp_path: Path, filter_: str) -> None:
    """A job that runs when the debugger attaches stops at its exception."""
    port = free_port()
    job = running(relay, tmp_path, COMMANDS["script"], port, "--debug-ranks", "none")
    async with job, attached_editor(relay, port, filter_) as editor:
        assert FILTERS[filter_] == await stops(editor, tmp_path / "job")


@with_each_filter
async def test_listening_editor(relay: LocalRelay, tmp_path: Path, filter_: str) -> None:
    """A job that connects to a listening editor while it waits stops at its exception."""
    port, job = free_port(), tmp_path / "job" / "__main__.py"
    async with (
        running(relay, tmp_path, COMMANDS["script"], port),
        listening_editor(port, job, NEVER, exceptions=[filter_]) as editor,
        forwarded(relay, port),
    ):
        await editor.attached
        assert FILTERS[filter_] == await stops(editor.client, tmp_path / "job")


@contextlib.asynccontextmanager
async def running(
    relay: LocalRelay, directory: Path, command: Sequence[str], port: int, *options: str
) -> AsyncIterator[None]:
    """Run the program, under `relay-agent run` unless its own command line starts debugging; killed at the end."""
    job = directory / "job"
    job.mkdir()
    (job / "__main__.py").write_text(PROGRAM)
    words = [sys.executable, *(word.format(directory=job) for word in command)]
    if "--is-debug" in command:
        words += ["--debug-port", str(port)]
    else:
        words = [sys.executable, "-m", "relay_agent", "run", "--hc", HC, "--port", str(port), *options, "--", *words]
    path = os.pathsep.join([str(directory), str(ROOT)])
    process = await asyncio.create_subprocess_exec(
        *words, stderr=asyncio.subprocess.PIPE, env=environment(**access(relay, directory, "listen", PYTHONPATH=path))
    )
    try:
        yield
        await asyncio.wait_for(process.communicate(), DEADLINE)
        assert 1 == process.returncode
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


@contextlib.asynccontextmanager
async def forwarded(relay: LocalRelay, port: int) -> AsyncIterator[None]:
    """Have a client forward the job's port."""
    async with (
        Tunnels(relay.endpoint, relay.sender, relay.tls) as tunnels,
        Forwarder(tunnels, [port], may_reverse=True),
    ):
        yield


@contextlib.asynccontextmanager
async def attached_editor(relay: LocalRelay, port: int, filter_: str) -> AsyncIterator[DapClient]:
    """Attach an editor with an exception filter."""
    async with forwarded(relay, port), await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor:
        await editor.attach({}, exceptions=[filter_], within=DEADLINE)
        yield editor


async def stops(editor: DapClient, job: Path) -> list[tuple[str, int]]:
    """Let the job raise, and return function and line of each stop until it has ended."""
    (job / "crash").touch()
    found = []
    while (event := await editor.wait_for_event("stopped", "terminated", within=DEADLINE))["event"] == "stopped":
        assert "exception" == event["body"]["reason"]
        thread = event["body"]["threadId"]
        top = (await editor.request("stackTrace", {"threadId": thread, "levels": 1}, within=DEADLINE))["stackFrames"][0]
        found.append((top["name"], top["line"]))
        await editor.request("continue", {"threadId": thread}, within=DEADLINE)
    return found
