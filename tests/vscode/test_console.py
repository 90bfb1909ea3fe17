"""Facts about what relay-client shows in a real VS Code, in the Debug Console and in boxes."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from relay_client.dap.client import DapClient
from tests.support.ports import free_port
from tests.support.relay import LocalRelay
from tests.support.run_job import agents_on, running_client
from tests.support.vscode.editor import Editor
from tests.support.vscode.jobs import waiting_job
from tests.support.vscode.workspace import BREAKPOINT, attach

pytestmark = [pytest.mark.vscode, pytest.mark.xdist_group("vscode"), pytest.mark.asyncio(loop_scope="module")]


async def test_f5_before_the_job(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """The console shows what is waited for, and so does a notification; when the job comes, it stops."""
    port = free_port()
    async with editor.window(attach("rank 0", port)) as window, running_client(relay, tmp_path, "--ports", str(port)):
        waiting = f"relay-client: waiting for port {port} on 'myhc': no agent is listening yet, "
        await window.breakpoint(BREAKPOINT)
        await window.press("F5")
        await window.until_shown(window.notifications, f"{waiting}10 s")
        await window.command("workbench.debug.action.toggleRepl")
        await window.until_shown(window.console, f"{waiting}1 s")
        async with waiting_job(editor.workspace, relay, tmp_path, port):
            await window.until_stopped()


async def test_the_job_is_killed_at_a_breakpoint(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """The console and a notification show the signal, and the session ends."""
    port = free_port()
    async with (
        editor.window(attach("rank 0", port)) as window,
        waiting_job(editor.workspace, relay, tmp_path, port) as job,
        running_client(relay, tmp_path, "--ports", str(port)),
    ):
        await window.breakpoint(BREAKPOINT)
        await window.press("F5")
        await window.until_stopped()
        os.kill(job.process.pid, signal.SIGKILL)
        await window.until_shown(window.console, "relay-client: the job was killed (signal 9, SIGKILL;")
        await window.until_shown(window.notifications, "the job was killed (signal 9, SIGKILL;")
        await window.until_ended()


async def test_relay_client_is_stopped_at_a_breakpoint(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """The console shows why the session ends, and the job continues."""
    port = free_port()
    async with (
        editor.window(attach("rank 0", port)) as window,
        waiting_job(editor.workspace, relay, tmp_path, port) as job,
        running_client(relay, tmp_path, "--ports", str(port)) as client,
    ):
        await window.breakpoint(BREAKPOINT)
        await window.press("F5")
        await window.until_stopped()
        client.process.terminate()
        await window.until_shown(
            window.console, "relay-client: relay-client was stopped; the job continues without a debugger"
        )
        await window.until_ended()
        assert job.process.returncode is None


async def test_the_agent_is_killed_at_a_breakpoint(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """VS Code attaches again without help, and the job stops again."""
    port = free_port()
    async with (
        editor.window(attach("rank 0", port)) as window,
        waiting_job(editor.workspace, relay, tmp_path, port),
        running_client(relay, tmp_path, "--ports", str(port)),
    ):
        await window.breakpoint(BREAKPOINT)
        await window.press("F5")
        await window.until_stopped()
        (agent,) = agents_on(tmp_path / "job" / "node")
        agent.kill()
        await window.until_shown(window.console, "relay-client: the agent is gone: ")
        while 2 > sum(is_attach(report.message) for report in window.control.reports):
            await asyncio.sleep(0.05)
        await window.until_shown(window.call_stack, f"step train.py {BREAKPOINT}:1")


def is_attach(message: object) -> bool:
    return isinstance(message, dict) and (message.get("type"), message.get("command")) == ("request", "attach")


async def test_wrong_mappings(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """The console shows the mappings to write."""
    port = free_port()
    wrong = [{"localRoot": str(editor.workspace.folder), "remoteRoot": "/wrong"}]
    async with (
        editor.window(attach("rank 0", port, pathMappings=wrong)) as window,
        waiting_job(editor.workspace, relay, tmp_path, port),
        running_client(relay, tmp_path, "--ports", str(port)),
    ):
        await window.breakpoint(BREAKPOINT)
        await window.press("F5")
        await window.until_shown(window.console, f'"remoteRoot": "{tmp_path / "job"}"')


async def test_a_rank_that_somebody_holds(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """A box names the holder."""
    port = free_port()
    async with (
        editor.window(attach("rank 0", port)) as window,
        waiting_job(editor.workspace, relay, tmp_path, port),
        running_client(relay, tmp_path, "--ports", str(port)),
        await DapClient.connect("127.0.0.1", port) as holder,
    ):
        await holder.attach({}, within=60)
        await window.press("F5")
        await window.until_shown(window.dialog, "is held by ")
        await window.press("Escape")
