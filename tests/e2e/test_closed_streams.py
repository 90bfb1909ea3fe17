"""Facts about programs whose standard streams are closed, as after `nohup command <&- >&- 2>&-` over ssh."""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from relay_agent.cli import make_parser as agent_parser
from relay_client.cli import make_parser as client_parser
from relay_server.cli import make_parser as server_parser
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import environment, run
from tests.support.network.relay import LocalRelay

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(os.name != "posix", reason="the shell of POSIX systems closes descriptors"),
]

CLOSED = {"stdin": "<&-", "stdout": ">&-", "stderr": "2>&-", "all": "<&- >&- 2>&-"}


def closed(streams: str, *command: str) -> tuple[str, ...]:
    """Return a command that is started with closed streams."""
    return ("sh", "-c", f'exec "$@" {CLOSED[streams]}', "sh", *command)


async def status_of(*command: str, env: dict[str, str] | None = None) -> int:
    """Run a command to its end; its output is discarded."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment(**env or {}),
    )
    try:
        return await asyncio.wait_for(process.wait(), DEADLINE)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def commands(parser: argparse.ArgumentParser) -> list[str]:
    """Return the commands of a program."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return [name for group in groups for name in group.choices]


HELP = [
    (f"relay_{program}", name, "--help")
    for program, parser in {"agent": agent_parser(), "client": client_parser(), "server": server_parser()}.items()
    for name in commands(parser)
]


@pytest.mark.parametrize("command", HELP, ids=" ".join)
async def test_commands(command: tuple[str, ...]) -> None:
    """Each command of each program starts without any stream, and its output is discarded."""
    assert await status_of(*closed("all", sys.executable, "-m", *command)) == 0


@pytest.mark.parametrize("streams", CLOSED)
@pytest.mark.parametrize("module", ["relay_agent", "relay_client", "relay_server"])
async def test_version(module: str, streams: str) -> None:
    """Any of the streams may be closed."""
    assert await status_of(*closed(streams, sys.executable, "-m", module, "--version")) == 0


@pytest.mark.parametrize("streams", CLOSED)
async def test_command_that_asks_an_agent(relay: LocalRelay, streams: str) -> None:
    """A command that opens connections has the status that it has otherwise: no agent is listening."""
    env = {"RELAY_CONNECTION_STRING": relay.connection_string("send"), "RELAY_CA_FILE": str(relay.ca_file)}
    assert await status_of(*closed(streams, sys.executable, "-m", "relay_client", "targets"), env=env) == 9


JOB = """
import json, os, sys, time
from pathlib import Path
{begin}
notes = Path({notes!r})
streams = [getattr(sys, name) is None for name in ("stdin", "stdout", "stderr")]
opened = {{number: os.path.lexists(f"/proc/self/fd/{{number}}") for number in range(3)}}
notes.with_suffix(".begun").write_text(json.dumps([streams, opened]))
notes.with_suffix(".begun").rename(notes)
while not {plain} and not notes.with_suffix(".end").exists():
    time.sleep(0.05)
"""


def noted(path: Path) -> object:
    """Return what the job has noted, or None if it has not yet."""
    return json.loads(path.read_text()) if path.exists() else None


async def notes_of(path: Path, job: asyncio.Future[int]) -> object:
    """Wait until the job has noted something, and return it."""
    while (found := noted(path)) is None:
        assert not job.done(), "the job has not begun"
        await asyncio.sleep(0.02)
    return found


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at descriptors in /proc")
@pytest.mark.parametrize("start", ["run", "API"])
@pytest.mark.parametrize("streams", ["stdout", "stderr", "all"])
async def test_job(relay: LocalRelay, tmp_path: Path, streams: str, start: str) -> None:
    """A job starts as without relay-debug, and no descriptor of the debugger gets the number of a stream."""
    port, notes, script = free_port(), tmp_path / "notes", tmp_path / "train.py"
    script.write_text(JOB.format(begin="", notes=str(notes), plain=True))
    assert await status_of(*closed(streams, sys.executable, str(script))) == 0
    plain = noted(notes)
    notes.unlink()

    begin = f"import relay_agent; relay_agent.start_remote_debugging('myhc', {port}, wait=0)"
    script.write_text(JOB.format(begin=begin if start == "API" else "", notes=str(notes), plain=False))
    agent = {"RELAY_CONNECTION_STRING": relay.connection_string("listen"), "RELAY_CA_FILE": str(relay.ca_file)}
    client = {**agent, "RELAY_CONNECTION_STRING": relay.connection_string("send")}
    options = ("-m", "relay_agent", "run", "--hc", "myhc", "--port", str(port), "--debug-ranks", "none", "--")
    front = (sys.executable, *options) if start == "run" else ()
    job = asyncio.ensure_future(status_of(*closed(streams, *front, sys.executable, str(script)), env=agent))
    try:
        assert await notes_of(notes, job) == plain
        listed = await run("relay_client", "wait", "--ranks", "0", "--timeout", "60", env=client)
        assert listed.status == 0, listed.stderr
    finally:
        notes.with_suffix(".end").touch()
        assert await job == 0
