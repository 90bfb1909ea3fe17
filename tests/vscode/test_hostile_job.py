"""Facts about what a compromised job can do to a real VS Code through its debugger: show text, and nothing else."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from relay_core.compat import timeout
from tests.support.debuggers.hostile_debugger import HostileDebugger, hostile_debugger
from tests.support.editors.vscode.editor import Editor
from tests.support.editors.vscode.window import Window
from tests.support.editors.vscode.workspace import attach
from tests.support.jobs.running import running_client
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.network.relay import LocalRelay

pytestmark = [pytest.mark.vscode, pytest.mark.xdist_group("vscode"), pytest.mark.asyncio(loop_scope="package")]

VARIABLES = "${env:RELAY_TESTS_CONTROL_PORT} ${command:workbench.action.terminal.new}"
"""VS Code has this variable in its environment, and runs this command, if it resolves the text."""
LINK = "out of memory, see [details](command:workbench.action.terminal.new)"
CHILD = {"$attach": True, "request": "attach", "name": VARIABLES, "subProcessId": 4242}


@contextlib.asynccontextmanager
async def attached(
    editor: Editor, relay: LocalRelay, directory: Path, *messages: dict[str, Any], **options: Any
) -> AsyncIterator[tuple[Window, HostileDebugger]]:
    """Press F5, and attach to a debugger that then sends these messages."""
    port = free_port()
    async with (
        hostile_debugger(relay, directory, port, *messages, **options) as debugger,
        running_client(relay, directory, "--ports", str(port)),
        editor.window(attach("rank 0", port)) as window,
    ):
        await window.press("F5")
        yield window, debugger
        assert 0 == await window.control.call("terminals")


async def until(debugger: HostileDebugger, count: int) -> list[dict[str, Any]]:
    """Return the arguments of each `attach` once there are `count`."""
    async with timeout(DEADLINE):
        while len(debugger.attached) < count:
            await asyncio.sleep(0.05)
    return debugger.attached


@pytest.mark.parametrize(
    "message",
    [
        {"type": "request", "command": "startDebugging", "arguments": {"request": "attach", "configuration": CHILD}},
        {"type": "event", "event": "debugpyAttach", "body": CHILD},
    ],
    ids=["startDebugging", "debugpyAttach"],
)
async def test_name_of_a_child(editor: Editor, relay: LocalRelay, tmp_path: Path, message: dict[str, Any]) -> None:
    """The session of a child process has a name without the job's text, so that VS Code resolves no variable of it."""
    async with attached(editor, relay, tmp_path, message) as (window, debugger):
        child = (await until(debugger, 2))[1]
        assert 4242 == child["subProcessId"]
        started = [report.message["name"] for report in window.control.reports if report.what == "started"]
        for name in (child.get("name", ""), *started):
            assert "terminal" not in name
            assert "$" not in name
            assert not any(part.isdecimal() and part != "4242" and len(part) > 1 for part in name.split())


async def test_links_in_notifications(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """A notification with a text of the job contains no link."""
    important = {"type": "event", "event": "output", "body": {"category": "important", "output": LINK}}
    progress = {"type": "event", "event": "progressStart", "body": {"progressId": "1", "title": LINK, "message": LINK}}
    async with attached(editor, relay, tmp_path, important, progress) as (window, debugger):
        await until(debugger, 1)
        await window.until_shown(window.console, "out of memory")
        await window.until_shown(window.notifications, "out of memory")
        assert 0 == await window.notifications.locator("a").count()


async def test_button_of_a_failed_request(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """The dialog of a failed request has no button that runs a command which the job has chosen."""
    error = {"id": 1, "format": LINK, "showUser": True, "url": "command:workbench.action.terminal.new"}
    refusals = {"attach": {"message": LINK, "body": {"error": {**error, "urlLabel": "Fix it"}}}}
    async with attached(editor, relay, tmp_path, refusals=refusals) as (window, _):
        await window.until_shown(window.dialog, "out of memory")
        assert 0 == await window.dialog.get_by_text("Fix it").count()
        assert 0 == await window.dialog.locator("a", has_text="details").count()
        await window.press("Escape")
        await window.dialog.wait_for(state="hidden")
