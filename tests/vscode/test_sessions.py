"""Facts about debug sessions in a real VS Code, through a real relay: what a user sees from F5 on."""

import asyncio
import re
from pathlib import Path

import pytest

from tests.support.editors.vscode.editor import Editor
from tests.support.editors.vscode.jobs import waiting_job
from tests.support.editors.vscode.sessions import ready_for_f5, stopped_at_a_breakpoint
from tests.support.editors.vscode.workspace import BREAKPOINT, PROGRAM, SCRIPT, attach
from tests.support.jobs.running import running_client
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import consecutive_ports
from tests.support.network.chaos import ChaosProxy
from tests.support.network.relay import LocalRelay

SLOW = """\
import threading


class Slow:
    def __repr__(self):
        threading.Event().wait()


value = Slow()
number = 7
number = 8
"""
PARENT = """\
import multiprocessing


def work():
    number = 7
    return number


if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=work)
    process.start()
    process.join()
"""
FAILS = """\
number = 7
raise ValueError("no data")
"""

pytestmark = [pytest.mark.vscode, pytest.mark.xdist_group("vscode"), pytest.mark.asyncio(loop_scope="package")]


async def test_f5_stops_at_a_breakpoint(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """F5 stops the job at a breakpoint, a step shows its variables, and Disconnect leaves the job running."""
    async with stopped_at_a_breakpoint(editor, relay, tmp_path) as (window, job, *_):
        await window.until_shown(window.call_stack, f"step {SCRIPT} {BREAKPOINT}:1")
        await window.until_shown(window.variables, "number = 0")
        await window.press("F10")
        await window.until_shown(window.variables, "square = 0")
        await window.press("Shift+F5")
        await window.until_ended()
        assert job.process.returncode is None


async def test_the_network_is_cut_at_a_breakpoint(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """A step pressed while the network is away is taken when it is back, and the session has not ended."""
    async with (
        ChaosProxy("127.0.0.1", relay.server.port) as chaos,
        stopped_at_a_breakpoint(editor, relay, tmp_path, through=chaos) as (window, _, client, _),
    ):
        await window.until_shown(window.variables, "number = 0")
        chaos.accepting = False
        chaos.cut()
        await client.line("reconnecting since")
        await window.press("F10")
        chaos.accepting = True
        await window.until_shown(window.variables, "square = 0")
        assert not [each for each in window.control.reports if each.what == "ended"]


async def test_two_ranks_with_one_f5(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """A compound attaches to both ranks, and each stops at the breakpoint."""
    ports = consecutive_ports(2)
    ranks = [attach(f"rank {rank}", port) for rank, port in enumerate(ports)]
    both = {"name": "all ranks", "configurations": ["rank 0", "rank 1"], "stopAll": True}
    async with (
        editor.window(*ranks, compounds=[both]) as window,
        waiting_job(editor.workspace, relay, tmp_path, ports[0], "--debug-ranks", "all", RANK="0", WORLD_SIZE="2"),
        waiting_job(
            editor.workspace, relay, tmp_path / "other", ports[0], "--debug-ranks", "all", RANK="1", WORLD_SIZE="2"
        ),
        running_client(relay, tmp_path, "--ports", f"{ports[0]}-{ports[1]}"),
    ):
        await window.breakpoint(BREAKPOINT)
        await window.start("all ranks")
        for name in ("rank 0", "rank 1"):
            await window.until_shown(window.call_stack, f"{name} Paused On Breakpoint")
        await window.press("Shift+F5")
        await window.until_ended()


async def test_a_complete_call_stack(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """Below a complete call stack VS Code offers no "Load More Stack Frames", at the breakpoint and after each step."""
    async with stopped_at_a_breakpoint(editor, relay, tmp_path) as (window, *_):
        for line in range(BREAKPOINT, BREAKPOINT + 3):
            await window.until_shown(window.call_stack, f"step {SCRIPT} {line}:1 <module>")
            assert 2 == len(await window.lines(window.call_stack))
            await window.press("F10")


async def test_a_slow_value(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """Beside a value whose `__repr__` does not return, the others are shown, and a step is taken."""
    editor.workspace.write_script("slow.py", SLOW)
    line = SLOW.splitlines().index("number = 7") + 1
    async with stopped_at_a_breakpoint(editor, relay, tmp_path, script="slow.py", line=line) as (window, *_):
        await window.until_shown(window.variables, "value = <Slow: repr takes longer than ")
        await window.press("F10")
        await window.until_shown(window.variables, "number = 7")


async def test_a_child_process(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """With "subProcess" a child stops at its breakpoint, and the call stack shows both processes."""
    editor.workspace.write_script("parent.py", PARENT)
    line = PARENT.splitlines().index("    number = 7") + 1
    session = stopped_at_a_breakpoint(editor, relay, tmp_path, script="parent.py", line=line, subProcess=True)
    async with session as (window, job, *_):
        await window.until_shown(window.call_stack, f"work parent.py {line}:1")
        rows = await window.lines(window.call_stack)
        assert "rank 0 Running" == rows[0]
        assert any(re.fullmatch(".+: child [0-9]+ Paused On Breakpoint", row) for row in rows), rows
        await window.press("F5")
        assert 0 == await asyncio.wait_for(job.process.wait(), DEADLINE)


async def test_another_version_of_the_file(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """If the file was changed after the job was started, a notification reports it."""
    async with ready_for_f5(editor, relay, tmp_path) as (window, *_):
        (tmp_path / "job" / SCRIPT).write_text("# another version\n" + PROGRAM)
        await window.press("F5")
        await window.until_shown(window.notifications, f"relay-client: {SCRIPT} differs from the job's file on ")


async def test_the_job_fails(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """When the job ends with an exception, the Debug Console shows it with the status, and the session ends."""
    editor.workspace.write_script("fails.py", FAILS)
    async with stopped_at_a_breakpoint(editor, relay, tmp_path, script="fails.py", line=1) as (window, *_):
        await window.press("F5")
        await window.until_shown(window.page.locator(".exception-widget"), "ValueError")
        await window.press("F5")
        await window.until_shown(window.console, "ended with status 1: ValueError: no data")
        await window.until_ended()
