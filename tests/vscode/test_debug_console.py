"""Facts about what a real VS Code shows of everything that only relay-client knows: docs/guides/editor.md."""

import asyncio
import signal
from pathlib import Path

import pytest

from relay_client.dap import DapClient
from tests.support.editors.vscode.editor import Editor
from tests.support.editors.vscode.jobs import waiting_job
from tests.support.editors.vscode.sessions import ready_for_f5, stopped_at_a_breakpoint
from tests.support.editors.vscode.workspace import BREAKPOINT, attach
from tests.support.jobs.running import agents_on, running_client
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.network.relay import HC, LocalRelay

pytestmark = [pytest.mark.vscode, pytest.mark.xdist_group("vscode"), pytest.mark.asyncio(loop_scope="package")]


async def test_f5_before_the_job(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """After F5 without a job the Debug Console shows what is missing, and once the job is there it stops."""
    port = free_port()
    async with (
        editor.window(attach("rank 0", port)) as window,
        running_client(relay, tmp_path, "--ports", str(port)),
    ):
        await window.breakpoint(BREAKPOINT)
        await window.command("workbench.panel.repl.view.focus")  # VS Code opens it only after the attach is answered
        await window.press("F5")
        await window.until_shown(window.console, f"relay-client: waiting for port {port} on '{HC}' (")
        async with waiting_job(editor.workspace, relay, tmp_path, port):
            await window.until_stopped()
            await window.until_shown(window.variables, "number = 0")
            await window.press("Shift+F5")
            await window.until_ended()


async def test_the_job_is_killed(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """When the job is killed at a breakpoint, the Debug Console shows the signal, and the session ends for good."""
    async with stopped_at_a_breakpoint(editor, relay, tmp_path) as (window, job, *_):
        job.process.kill()
        await window.until_shown(window.console, "was killed by SIGKILL (the usual cause is lack of memory)")
        await window.until_ended()
        await window.until_shown(window.notifications, "was killed by SIGKILL (")


async def test_the_relay_is_gone(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """The Debug Console shows that the connection is lost and restored; a step requested in between is executed."""
    async with stopped_at_a_breakpoint(editor, relay, tmp_path) as (window, *_):
        await window.until_shown(window.variables, "number = 0")
        await relay.server.stop()
        await window.until_shown(window.console, "is interrupted: ")
        await window.press("F10")
        await relay.server.start()
        await window.until_shown(window.variables, "square = 0")
        await window.until_shown(window.console, " was restored after ")


async def test_relay_client_is_stopped(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """When relay-client is ended at a breakpoint, the Debug Console shows it, and the job continues."""
    async with stopped_at_a_breakpoint(editor, relay, tmp_path) as (window, job, client, _):
        client.process.send_signal(signal.SIGTERM)
        await window.until_shown(window.console, "this client was stopped; the job continues without a debugger")
        await window.until_ended()
        assert job.process.returncode is None


async def test_a_rank_that_is_held(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """F5 on a rank that another debugger holds opens a dialog with the holder."""
    async with (
        ready_for_f5(editor, relay, tmp_path) as (window, _, _, port),
        await DapClient.connect("127.0.0.1", port, within=DEADLINE) as other,
    ):
        await other.attach({}, within=DEADLINE)
        await window.press("F5")
        await window.until_shown(window.dialog, " is held by ")
        await window.press("Escape")
        await window.dialog.wait_for(state="hidden")


async def test_the_agent_is_killed_at_a_breakpoint(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """VS Code attaches again without help, and the job stops again."""
    async with stopped_at_a_breakpoint(editor, relay, tmp_path) as (window, *_):
        (agent,) = agents_on(tmp_path / "job" / "node")
        agent.kill()
        shown = await window.until_shown(window.console, "relay-client: the connection to the agent was lost: ")
        assert shown[-1].endswith("; attaching again")
        while 2 > sum(is_attach(report.message) for report in window.control.reports):
            await asyncio.sleep(0.05)
        await window.until_shown(window.call_stack, f"step train.py {BREAKPOINT}:1")


def is_attach(message: object) -> bool:
    return isinstance(message, dict) and (message.get("type"), message.get("command")) == ("request", "attach")


async def test_a_long_wait(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """Who has not opened the Debug Console is notified after ten seconds of waiting."""
    port = free_port()
    async with editor.window(attach("rank 0", port)) as window, running_client(relay, tmp_path, "--ports", str(port)):
        await window.press("F5")
        await window.until_shown(window.notifications, " (10 s so far): no agent is listening yet")
        await window.press("Shift+F5")
