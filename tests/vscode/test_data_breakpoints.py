"""A fact about a real VS Code: its menu offers to break on changes of a value, and it shows why a rank has stopped."""

from pathlib import Path

import pytest

from tests.support.editors.vscode.editor import Editor
from tests.support.editors.vscode.sessions import ready_for_f5
from tests.support.network.relay import LocalRelay

pytestmark = [pytest.mark.vscode, pytest.mark.xdist_group("vscode"), pytest.mark.asyncio(loop_scope="package")]

PROGRAM = """\
import time

class Schedule:
    def __init__(self):
        self.rate = 1

    def begin(self):
        return self

    def step(self):
        self.rate += 1

schedule = Schedule().begin()
while True:
    schedule.step()
    time.sleep(0.02)
"""
BREAKPOINT = PROGRAM.splitlines().index("        return self") + 1


async def test_break_on_value_change(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """The call stack shows name, values and line; the BREAKPOINTS view lists the value."""
    editor.workspace.write_script("schedule.py", PROGRAM)
    async with ready_for_f5(editor, relay, tmp_path, script="schedule.py", line=BREAKPOINT) as (window, *_):
        await window.press("F5")
        await window.until_stopped()
        await window.until_shown(window.variables, "self = ")
        await window.variables.filter(has_text="self = ").first.click()
        await window.until_shown(window.variables, "rate = 1")
        await window.variables.filter(has_text="rate").first.click(button="right")
        await window.page.locator(".monaco-menu .action-label", has_text="Break on Value Change").hover()
        await window.press("Enter")
        breakpoints = window.page.locator(".debug-breakpoints .monaco-list-row")
        await window.until_shown(breakpoints, "self.rate")
        await window.press("F5")
        await window.page.get_by_text("self.rate changed 1 -> 2 by ").first.wait_for()
