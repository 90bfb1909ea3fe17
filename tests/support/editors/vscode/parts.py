"""Parts of a window that the extension's tests use: the view of ranks, the status bar, lists and dialogs."""

import asyncio
import json
from typing import Any

from relay_core.compat import timeout
from tests.support.editors.vscode.window import Window
from tests.support.machine.deadline import DEADLINE

__all__ = [
    "choices",
    "choose",
    "close_dialog",
    "open_url",
    "ranks",
    "run_command",
    "snapshots",
    "status_bar",
    "write_settings",
]


def status_bar(window: Window) -> Any:
    """Return the entry of the extension in the status bar."""
    return window.page.locator('[id="relay-debug.relay-debug.relayDebug.ranks"]')


def ranks(window: Window) -> Any:
    """Return the rows of the extension's view."""
    return window.page.locator('.pane:has([aria-label="Ranks Section"]) .monaco-list-row')


def snapshots(window: Window) -> Any:
    """Return the rows of the extension's view of snapshots."""
    return window.page.locator('.pane:has([aria-label="Snapshots Section"]) .monaco-list-row')


def choices(window: Window) -> Any:
    """Return the entries of the list that is shown at the top."""
    return window.page.locator(".quick-input-list .monaco-list-row")


async def choose(window: Window, text: str) -> None:
    """Choose an entry of the list that is shown at the top."""
    await choices(window).filter(has_text=text).first.click()


async def run_command(window: Window, command: str, *parameters: object) -> "asyncio.Task[None]":
    """Run a command that may ask something before it returns."""
    return asyncio.ensure_future(window.command(command, *parameters))


async def open_url(window: Window, url: str) -> None:
    """Open a link as another program does, and allow the extension to handle it."""
    opening = await run_command(window, "workbench.action.url.openUrl")
    field = window.page.locator(".quick-input-box input")
    await field.fill(url)
    await field.press("Enter")
    await window.dialog.get_by_text("Open", exact=True).click()
    await opening


async def write_settings(window: Window, settings: dict[str, object]) -> None:
    """Write .vscode/settings.json, and wait until VS Code has read it; the next window has none."""
    (window.workspace.folder / ".vscode" / "settings.json").write_text(json.dumps(settings))
    async with timeout(DEADLINE):
        for name, value in settings.items():
            while value != await window.control.call("setting", name=name):
                await asyncio.sleep(0.05)


async def close_dialog(window: Window) -> None:
    """Close the dialog in which VS Code shows "connect ECONNREFUSED"."""
    await window.page.locator(".monaco-dialog-box", has_text="ECONNREFUSED").wait_for()
    await window.page.keyboard.press("Escape")
