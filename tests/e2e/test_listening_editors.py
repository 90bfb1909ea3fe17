"""Facts about what an editor that listens is shown: the job is stopped at a breakpoint, and something happens to it."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from relay_client.dap import DapClient
from tests.support.editors.listening import ListeningEditor, listening_editor
from tests.support.jobs.running import running_client, running_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import Program, run
from tests.support.network.relay import LocalRelay

pytestmark = pytest.mark.e2e

PROGRAM = """\
import os
import sys
import time
from pathlib import Path

Path("pid").write_text(str(os.getpid()))
while not Path("stop").exists():
    time.sleep(0.01)
sys.exit(3)
"""
LINE = PROGRAM.splitlines().index("    time.sleep(0.01)") + 1


class Session(NamedTuple):
    """An editor at a breakpoint of a job, and the relay-client between them."""

    editor: ListeningEditor
    client: Program
    script: Path
    pid: int
    """Of the job."""


@pytest.fixture
async def session(relay: LocalRelay, tmp_path: Path) -> AsyncIterator[Session]:
    """Start an editor that listens, a job that runs, and a relay-client."""
    script, port = tmp_path / "train.py", free_port()
    script.write_text(PROGRAM)
    async with (
        running_job(relay, script, "--port", str(port), "--debug-ranks", "none", cwd=tmp_path),
        listening_editor(port, script, LINE) as editor,
        running_client(relay, tmp_path, "--ports", str(port)) as client,
    ):
        await editor.until_stopped()
        yield Session(editor, client, script, int((tmp_path / "pid").read_text()))


async def test_a_killed_job(session: Session) -> None:
    """The console shows that the job was killed, before the session ends with its exit code."""
    os.kill(session.pid, signal.SIGKILL)
    assert (await shown(session.editor.client, "was killed by SIGKILL")).startswith("relay-client: the job ")
    assert 137 == (await event(session.editor.client, "exited"))["exitCode"]
    await event(session.editor.client, "terminated")


async def test_a_job_that_ends(session: Session) -> None:
    """The console shows the exit status of a job that ends on its own."""
    (session.script.parent / "stop").touch()
    await session.editor.client.request("setBreakpoints", {"source": {"path": str(session.script)}}, within=DEADLINE)
    await session.editor.client.request("continue", {"threadId": 1}, within=DEADLINE)
    await shown(session.editor.client, "the job ended with status 3")
    assert 3 == (await event(session.editor.client, "exited"))["exitCode"]
    await event(session.editor.client, "terminated")


async def test_an_interruption(session: Session, relay: LocalRelay) -> None:
    """A line reports the interruption, a step taken meanwhile is carried out later, and a line reports its end."""
    await relay.server.stop()
    assert "it will be restored automatically" in await shown(session.editor.client, "is interrupted")
    stepping = asyncio.ensure_future(session.editor.step())
    await relay.server.start()
    assert LINE - 1 == await stepping
    await shown(session.editor.client, " was restored after ")


async def test_a_client_that_stops(session: Session) -> None:
    """The console shows that relay-client was stopped and that the job continues, before the session ends."""
    session.client.process.send_signal(signal.SIGTERM)
    await shown(session.editor.client, "this client was stopped; the job continues without a debugger")
    await event(session.editor.client, "terminated")


async def test_status(relay: LocalRelay, tmp_path: Path) -> None:
    """`relay-client status` shows why an editor that listens waits, and later where the job has stopped."""
    script, port = tmp_path / "train.py", free_port()
    script.write_text(PROGRAM)
    async with (
        listening_editor(port, script, LINE) as editor,
        running_client(relay, tmp_path, "--ports", str(port)) as client,
    ):
        await client.line("waiting: ")
        waiting = f"127.0.0.1:{port}: an editor is listening: no agent is listening yet\n"
        assert waiting in (await run("relay_client", "status")).stdout
        async with running_job(relay, script, "--port", str(port), cwd=tmp_path):
            await editor.until_stopped()
            status = (await run("relay_client", "status")).stdout
            assert f"127.0.0.1:{port}: the job has connected to an editor (1)\n" in status
            assert "stopped " in status


async def shown(editor: DapClient, part: str) -> str:
    """Return the next line of relay-client that contains a text."""

    def matches(body: dict[str, Any]) -> bool:
        return body.get("output", "").startswith("relay-client: ") and part in body["output"]

    return str((await editor.wait_for_event("output", matching=matches, within=DEADLINE))["body"]["output"])


async def event(editor: DapClient, name: str) -> dict[str, Any]:
    """Return the body of the next event with a name."""
    return dict((await editor.wait_for_event(name, within=DEADLINE)).get("body", {}))
