"""A window of VS Code that shows the sample and nothing that is not about debugging."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from tests.pictures.colours import both_screenshots
from tests.pictures.files import write_png
from tests.pictures.needs import EXTENSION
from tests.pictures.scripts import TRAINING
from tests.pictures.stage import Stage
from tests.support.editors.vscode.editor import running_editor
from tests.support.editors.vscode.installation import find_installation
from tests.support.jobs.processes import ROOT

if TYPE_CHECKING:
    from tests.support.editors.vscode.window import Window

__all__ = ["SCRIPT", "arrange", "move_top", "screenshots", "window_of", "write_screenshots"]

SCRIPT = "train.py"
SETTINGS = {
    "breadcrumbs.enabled": False,
    "debug.toolBarLocation": "docked",
    "editor.fontSize": 13,
    "editor.folding": False,
    "editor.guides.indentation": False,
    "editor.lineDecorationsWidth": 4,
    "editor.lineNumbersMinChars": 3,
    "editor.matchBrackets": "never",
    "editor.occurrencesHighlight": "off",
    "editor.overviewRulerBorder": False,
    "editor.renderLineHighlight": "none",
    "editor.scrollbar.horizontal": "hidden",
    "editor.scrollbar.vertical": "hidden",
    "editor.stickyScroll.enabled": False,
    "window.autoDetectColorScheme": True,
    "window.commandCenter": False,
    "window.menuBarVisibility": "hidden",
    "workbench.activityBar.location": "hidden",
    "workbench.editor.editorActionsLocation": "hidden",
    "workbench.layoutControl.enabled": False,
}
SCALE = 2
SIDE_BAR = 350
"""Width."""
EDGE = 2
"""Distance of what moves an edge from the part below it."""
COLOURED = {"light": ".monaco-workbench.vs", "dark": ".monaco-workbench.vs-dark"}


@contextlib.asynccontextmanager
async def window_of(stage: Stage, width: int, height: int, *configurations: dict[str, Any]) -> AsyncIterator[Window]:
    """Show a project with the sample and these launch configurations, in a window of this size."""
    artefacts = ROOT / "build" / "pictures"
    installation = find_installation()
    async with running_editor(installation, stage.directory, artefacts, extensions=[EXTENSION], scale=SCALE) as editor:
        editor.workspace.write_script(SCRIPT, TRAINING)
        async with editor.window(*configurations) as window:
            (editor.workspace.folder / ".vscode" / "settings.json").write_text(json.dumps(SETTINGS))
            await window.page.set_viewport_size({"width": width, "height": height})
            await window.page.locator(".activitybar").wait_for(state="hidden")
            await window.open(SCRIPT)
            yield window


async def arrange(window: Window, *, closed: Sequence[str], first_line: int) -> None:
    """Arrange the parts of the window.

    Args:
        window: The window.
        closed: Sections of the view Run and Debug.
        first_line: Of the script in the editor.
    """
    for name in closed:
        header = window.page.locator(f'.pane-header[aria-label="{name} Section"]')
        if await header.get_attribute("aria-expanded") == "true":
            await header.click()
    box = await window.page.locator(".sidebar").bounding_box()
    assert box is not None
    await drag(window, (box["x"] + box["width"], box["y"] + 100), (SIDE_BAR, box["y"] + 100))
    await window.command("revealLine", {"lineNumber": first_line, "at": "top"})


async def move_top(window: Window, part: str, to: float) -> None:
    """Move the upper edge of a part of the window, which a CSS selector names."""
    box = await window.page.locator(part).first.bounding_box()
    assert box is not None
    x = box["x"] + box["width"] / 2
    await drag(window, (x, box["y"] - EDGE), (x, to))


async def drag(window: Window, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Press the mouse button at one point, and release it at another one."""
    mouse = window.page.mouse
    await mouse.move(*start)
    await mouse.down()
    await mouse.move(*end, steps=5)
    await mouse.up()
    await mouse.move(0, 0)


async def screenshots(window: Window) -> dict[str, bytes]:
    """Return a screenshot of the window for each theme."""
    return await both_screenshots(window.page, lambda theme: window.page.locator(COLOURED[theme]).wait_for())


async def write_screenshots(name: str, window: Window) -> None:
    """Write the PNG files of the window."""
    for theme, screenshot in (await screenshots(window)).items():
        write_png(name, theme, screenshot)
