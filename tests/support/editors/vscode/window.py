"""One window of VS Code: what a user does in it, and what a user sees."""

import asyncio
import contextlib
import dataclasses
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.editors.vscode.control import Control
from tests.support.editors.vscode.workspace import SCRIPT, Workspace
from tests.support.machine import secrets
from tests.support.machine.deadline import DEADLINE

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

__all__ = ["Window"]

CLEARED_BY = (
    ("workbench.action.tasks.terminate", "terminateAll"),
    ("workbench.debug.viewlet.action.removeAllBreakpoints",),
    ("workbench.debug.panel.action.clearReplAction",),
    ("notifications.clearAll",),
    ("workbench.view.debug",),  # VS Code leaves "Locals" closed if the first stop has to open this view
    ("workbench.panel.repl.view.focus",),  # as after the first session, whatever a test has shown
)
"""Commands with their parameters."""


class Window:
    """A window that shows a workspace.

    What it shows is found by the CSS classes of VS Code's own parts, which another version may name differently: the
    version is pinned.

    Args:
        page: The browser's page.
        control: The extension in it.
        workspace: The folder it shows.
    """

    def __init__(self, page: "Page", control: Control, workspace: Workspace) -> None:
        self.page = page
        self.control = control
        self.workspace = workspace
        self.console = page.locator(".repl .monaco-list-row:visible")
        """The lines of the Debug Console that are in view."""
        self.call_stack = page.locator(".debug-call-stack .monaco-list-row:visible")
        self.variables = page.locator(".debug-variables .monaco-list-row:visible")
        self.current_line = page.locator(".debug-top-stack-frame-line")
        """The yellow line where the program stands."""
        self.notifications = page.locator(".notification-list-item-message")
        self.problems = page.locator(".markers-panel .monaco-list-row:visible")
        self.dialog = page.locator(".monaco-dialog-box")
        self.toolbar = page.locator(".debug-toolbar")
        """Shown as long as there is a debug session."""

    async def ready(self) -> None:
        """Wait until it shows the files of the folder."""
        await self.page.locator(".explorer-folders-view .monaco-list-row").first.wait_for()

    async def clear(self) -> None:
        """Undo what a test has left, read launch.json and tasks.json again, and show the script."""
        await self.control.call("end")
        await self.until_ended()
        await self._until_stopped_sessions_are_gone()
        await self.control.call("commands", commands=CLEARED_BY)
        await self.control.call("configured", wanted=self.workspace.configured())
        self.control.reports.clear()
        await self.open(SCRIPT)
        await self.command("workbench.action.closeOtherEditors")  # to close and open the script takes longer

    async def _until_stopped_sessions_are_gone(self) -> None:
        """Wait until VS Code has stopped every session: meanwhile F5 does nothing, although the toolbar is hidden."""
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            named = {
                what: {report.session_id for report in self.control.reports if report.what == what}
                for what in ("started", "ended")
            }
            if named["started"] <= named["ended"]:
                return
            await asyncio.sleep(0.05)

    async def press(self, key: str) -> None:
        """Press a key, as "F5" or "Control+P"."""
        await self.page.keyboard.press(key)

    async def open(self, name: str) -> None:
        """Show a file of the project, or another one by its path."""
        await self.control.call("open", path=str(self.workspace.folder / name))
        await self.page.locator(f'.tab.active[data-resource-name="{Path(name).name}"]').wait_for()
        await self.page.locator(".editor-instance .view-line").first.wait_for()

    async def breakpoint(self, line: int, name: str = SCRIPT, **fields: str) -> None:
        """Set a breakpoint, or a logpoint with a message, in a file of the project, or another one by its path."""
        await self.control.call("breakpoint", path=str(self.workspace.folder / name), line=line, **fields)

    async def start(self, name: str) -> None:
        """Start a launch configuration or compound by its name."""
        await self.control.call("start", name=name)

    async def command(self, command: str, *parameters: object) -> None:
        """Run a command of VS Code's palette by its id."""
        await self.control.call("command", command=command, parameters=parameters)

    async def until_shown(self, part: "Locator", text: str) -> list[str]:
        """Wait until the rows of a part contain a text, and return them."""
        deadline = time.monotonic() + DEADLINE
        while text not in " ".join(lines := await self.lines(part)):
            assert time.monotonic() < deadline, f"{text!r} is not shown, but {lines}"
            await asyncio.sleep(0.1)
        return lines

    async def until_stopped(self) -> None:
        """Wait until the editor shows the line where the program stands."""
        await self.current_line.first.wait_for()

    async def step(self) -> None:
        """Step over a line, and wait until VS Code has shown the stop.

        To show a stop, VS Code gives the keyboard to the editor, and only then requests the variables. What is typed
        before that goes to the editor.
        """
        before = len(self.control.reports)
        await self.press("F10")
        await self.control.report(lambda report: report.is_request("scopes"), after=before)

    async def evaluate(self, expression: str) -> None:
        """Type an expression in the Debug Console, whose lines show the result."""
        await self.command("workbench.panel.repl.view.focus")
        await self.page.locator(".repl-input-wrapper .monaco-editor.focused").wait_for()
        await self.page.keyboard.type(expression)
        await self.press("Enter")

    async def until_ended(self) -> None:
        """Wait until no debug session is left."""
        await self.toolbar.wait_for(state="hidden")

    async def lines(self, part: "Locator") -> list[str]:
        """Return the text of each row of a part."""
        return [" ".join(text.split()) for text in await part.all_inner_texts()]

    async def screenshot(self, path: Path) -> None:
        """Write a PNG file of what the window shows."""
        await self.page.screenshot(path=path)

    async def keep(self, folder: Path) -> None:
        """Write what it shows, and the messages of its debug sessions, for whoever looks into a failure."""
        folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - the test is over
        with contextlib.suppress(Exception):  # the page may be what failed
            await self.screenshot(folder / "window.png")
            (folder / "console.txt").write_text("\n".join(await self.lines(self.console)))
        messages = [json.dumps(dataclasses.asdict(report)) for report in self.control.reports]
        secrets.check(*messages)
        (folder / "messages.jsonl").write_text("\n".join(messages))
