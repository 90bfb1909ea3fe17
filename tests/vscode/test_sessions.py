"""Facts about debug sessions in a real VS Code, through a real relay: what a user sees from F5 on."""

from pathlib import Path

import pytest

from relay_client.demo.chaos import ChaosProxy
from tests.support.ports import consecutive_ports
from tests.support.relay import LocalRelay
from tests.support.run_job import running_client
from tests.support.vscode.editor import Editor
from tests.support.vscode.jobs import waiting_job
from tests.support.vscode.sessions import stopped_at_a_breakpoint
from tests.support.vscode.workspace import BREAKPOINT, SCRIPT, attach

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
