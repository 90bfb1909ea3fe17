"""A fact about a real VS Code: its menu offers to break on changes of a value, and it learns why a rank has stopped."""

from pathlib import Path

import pytest

from tests.support.editors.vscode.control import Report
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


def is_stop_of_a_value(report: Report) -> bool:
    message = report.message if report.what == "received" else {}
    return message.get("event") == "stopped" and message["body"]["reason"] == "data breakpoint"


async def test_break_on_value_change(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """The BREAKPOINTS view lists the value, and the editor receives name, values and line of the change."""
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
        stop = await window.control.report(is_stop_of_a_value)
        assert stop.message["body"]["description"].startswith("self.rate changed 1 -> 2 by ")
        await window.until_shown(window.call_stack, "step")
