"""Four ranks in one debug session: the animation below the first paragraph of README, and a picture of the session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.pictures.editor import SCRIPT, arrange, move_top, screenshots, window_of
from tests.pictures.files import THEMES, write_gif, write_png
from tests.pictures.scripts import TRAINING
from tests.pictures.stage import Stage
from tests.support.jobs.many_ranks import line_of

if TYPE_CHECKING:
    from tests.support.editors.vscode.control import Report
    from tests.support.editors.vscode.window import Window

__all__ = ["all_ranks"]

WIDTH, HEIGHT = 1000, 640
PORT = 5600
LINE = line_of(TRAINING, "gradient = points.T")
CONFIGURATION = {
    "name": "Relay: all ranks",
    "type": "debugpy",
    "request": "attach",
    "connect": {"host": "127.0.0.1", "port": PORT},
    "pathMappings": [{"localRoot": "${workspaceFolder}", "remoteRoot": "."}],
}
SHOWN = 1800
"""Milliseconds for each step."""


async def all_ranks(stage: Stage) -> None:
    """F5 in a job that waits for a debugger, a stop of all ranks, and steps over an all_reduce."""
    async with (
        stage.job(TRAINING, "--debug-ranks", "all"),
        stage.client("--all-ranks", str(PORT)),
        window_of(stage, WIDTH, HEIGHT, CONFIGURATION) as window,
    ):
        await arrange(window, closed=("Watch", "Breakpoints", "Ranks"), first_line=LINE - 10)
        await move_top(window, ".part.panel", HEIGHT - 260)
        await move_top(window, '.pane:has([aria-label="Call Stack Section"])', 310)
        await window.page.locator(".statusbar-item", has_text="4 ranks").wait_for()
        frames = await session(window)
    for theme in THEMES:
        captions = {caption: taken[theme] for caption, taken in frames.items()}
        write_gif("all-ranks", theme, captions, SHOWN)
        write_png("all-ranks", theme, list(captions.values())[3])


async def session(window: Window) -> dict[str, dict[str, bytes]]:
    """Return what the window shows after each step, by what the user has done."""
    await window.breakpoint(LINE, SCRIPT)
    await window.page.locator(".cgmr[class*=codicon-debug-breakpoint]").first.wait_for()
    frames = {"A training job on four ranks waits for a debugger. Set a breakpoint": await screenshots(window)}
    await window.press("F5")
    await window.until_shown(window.console, f"ranks 0-3 at {SCRIPT}:{LINE}")
    await variables_received(window, 0)
    await window.until_shown(window.variables, "loss = ")
    frames["F5: all four ranks stop at the breakpoint"] = await screenshots(window)
    await step(window, LINE + 1)
    frames["F10: all ranks step"] = await screenshots(window)
    await compare(window, "rank 3")
    frames["@all gradient: before the all_reduce, each rank has its own value"] = await screenshots(window)
    await window.command("workbench.debug.panel.action.clearReplAction")
    await step(window, LINE + 2)
    frames["F10: all ranks step over the all_reduce together"] = await screenshots(window)
    await compare(window, "ranks 0-3 tensor")
    frames["@all gradient: now the value is equal in all ranks"] = await screenshots(window)
    return frames


async def compare(window: Window, shown: str) -> None:
    """Compare the gradients of all ranks in the Debug Console."""
    await window.evaluate("@all gradient")
    await window.until_shown(window.console, shown)
    await window.until_shown(window.console, "evaluated in")


async def variables_received(window: Window, before: int) -> None:
    """Wait until the debugger has sent variables, in a report after so many others."""

    def has_variables(report: Report) -> bool:
        return report.what == "received" and report.message.get("command") == "variables"

    await window.control.report(has_variables, after=before)


async def step(window: Window, line: int) -> None:
    """Step over a line in all ranks, until the window shows all stops and the variables."""
    before = len(window.control.reports)
    await window.step()
    await window.until_shown(window.console, f"ranks 0-3 at {SCRIPT}:{line}")
    await variables_received(window, before)
    await window.until_shown(window.variables, "gradient = ")
