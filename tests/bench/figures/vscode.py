"""A debug session in a real VS Code (`make extras`): what a person waits for, from the key to what the window shows.

F5 is timed until the current line is marked, and F10 until the variables pane shows the new value. VS Code itself waits
0.4 s after a step before it requests variables (`updateTreeScheduler` in variablesView.ts); that is part of the
second figure. The clock is that of the page: it starts at the key's event and stops when the window has changed.

"direct" is a job that calls `debugpy.listen` itself, from as far away; "tunnel" is one under `relay-agent run`, with an
editor that has attached before.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from relay_core.compat import timeout
from tests.bench.figures.attach import JOB, client_of, direct_job, job_with_agent
from tests.bench.programs import ROOT
from tests.bench.report import Row, median_ms
from tests.bench.stage import Stage
from tests.support.editors.vscode.editor import running_editor
from tests.support.editors.vscode.installation import NotInstalled, find_installation
from tests.support.editors.vscode.workspace import attach
from tests.support.machine.deadline import DEADLINE

if TYPE_CHECKING:
    from tests.support.editors.vscode.editor import Editor
    from tests.support.editors.vscode.window import Window

__all__ = ["vscode"]

FIGURE = "VS Code"
LINE = JOB.splitlines().index("    square = number * number") + 1
WATCH = """([selector, text]) => {
    let pressed = null;
    addEventListener('keydown', () => { pressed ??= performance.now(); }, { capture: true, once: true });
    const textOf = (each) => each.innerText.replace(/\\s+/g, ' ');
    const isShown = () => [...document.querySelectorAll(selector)].some((each) => textOf(each).includes(text));
    window.timed = new Promise((resolve) => {
        const observer = new MutationObserver(() => {
            if (pressed === null || !isShown()) return;
            observer.disconnect();
            resolve((performance.now() - pressed) / 1000);
        });
        observer.observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
    });
}"""
"""Starts at the next key, and ends at the first change of the page after which an element contains a text."""


async def vscode(stage: Stage, *, quick: bool) -> list[Row]:
    """The ways take turns: one session each, and steps in it."""
    try:
        installation = find_installation()
    except NotInstalled as missing:
        stage.skipped[FIGURE] = str(missing)
        return []
    script = stage.programs.directory / "working.py"
    script.write_text(JOB)
    port, _ = await job_with_agent(stage, script)
    await client_of(stage, port)
    ports = {"direct": await direct_job(stage, script), "tunnel": port}
    times: dict[str, dict[str, list[float]]] = {"stopped": {}, "stepped": {}}
    directory = stage.programs.directory / "vscode"
    directory.mkdir()
    async with running_editor(installation, directory, ROOT / "build" / "vscode") as editor:
        for turn in range(3 if quick else 8):
            for name, port in ports.items():
                stopped, stepped = await _session(editor, script, port, steps=2 if quick else 4)
                if turn:  # what is loaded once is not of interest
                    times["stopped"].setdefault(name, []).append(stopped)
                    times["stepped"].setdefault(name, []).extend(stepped)
    return [
        _row("F5 until the current line is marked", times["stopped"]),
        _row("F10 until the variables are shown", times["stepped"]),
    ]


def _row(what: str, seconds: dict[str, list[float]]) -> Row:
    return Row(
        FIGURE, what, "ms", {name: median_ms(each) for name, each in seconds.items()}, detail={"seconds": seconds}
    )


async def _session(editor: Editor, script: Path, port: int, *, steps: int) -> tuple[float, list[float]]:
    """Attach, step over the first line of a function again and again, and return the seconds of both."""
    mapping = {"localRoot": str(script.parent), "remoteRoot": str(script.parent)}
    async with editor.window(attach("rank 0", port, pathMappings=[mapping])) as window:
        await window.open(str(script))
        await window.breakpoint(LINE, str(script))
        stopped = await _timed(window, "F5", ".debug-top-stack-frame-line", "")
        stepped = []
        for _ in range(steps):
            await _until_first_line(window)
            stepped.append(await _timed(window, "F10", ".debug-variables .monaco-list-row", "square = 49"))
            await window.press("F5")
        await _until_first_line(window)
        await window.press("Shift+F5")
        await window.until_ended()
    return stopped, stepped


async def _until_first_line(window: Window) -> None:
    """Wait until the variables are those of the first line: the argument alone."""
    async with timeout(DEADLINE):
        while "number = 7" not in (shown := " ".join(await window.lines(window.variables))) or "square" in shown:
            await asyncio.sleep(0.02)


async def _timed(window: Window, key: str, selector: str, text: str) -> float:
    """Press a key, and return the seconds until an element contains a text."""
    await window.page.evaluate(WATCH, [selector, text])
    await window.press(key)
    async with timeout(DEADLINE):
        return float(await window.page.evaluate("window.timed"))
