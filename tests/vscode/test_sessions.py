"""Facts about debug sessions in a real VS Code, through a real relay: what a user sees from F5 on."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from relay_client.demo.chaos import ChaosProxy
from tests.support.ports import consecutive_ports, free_port
from tests.support.programs import Program, program
from tests.support.relay import HC, LocalRelay
from tests.support.run_job import access, running_client
from tests.support.vscode.editor import Editor
from tests.support.vscode.jobs import waiting_job
from tests.support.vscode.workspace import BREAKPOINT, SCRIPT, attach

pytestmark = [pytest.mark.vscode, pytest.mark.xdist_group("vscode"), pytest.mark.asyncio(loop_scope="package")]


async def test_f5_stops_at_a_breakpoint(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """F5 stops the job at a breakpoint, a step shows its variables, and Disconnect leaves the job running."""
    port = free_port()
    async with (
        editor.window(attach("rank 0", port)) as window,
        waiting_job(editor.workspace, relay, tmp_path, port) as job,
        running_client(relay, tmp_path, "--ports", str(port)),
    ):
        await window.breakpoint(BREAKPOINT)
        await window.press("F5")
        await window.until_stopped()
        await window.until_shown(window.call_stack, f"step {SCRIPT} {BREAKPOINT}:1")
        await window.until_shown(window.variables, "number = 0")
        await window.press("F10")
        await window.until_shown(window.variables, "square = 0")
        await window.press("Shift+F5")
        await window.until_ended()
        assert job.process.returncode is None


async def test_the_network_is_cut_at_a_breakpoint(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """A step pressed while the network is away is taken when it is back, and the session has not ended."""
    port = free_port()
    async with (
        editor.window(attach("rank 0", port)) as window,
        ChaosProxy("127.0.0.1", relay.server.port) as chaos,
        waiting_job(editor.workspace, relay, tmp_path, port),
        client_through(chaos, relay, tmp_path, port) as client,
    ):
        await window.breakpoint(BREAKPOINT)
        await window.press("F5")
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
    port = free_port()
    async with (
        editor.window(attach("rank 0", port)) as window,
        waiting_job(editor.workspace, relay, tmp_path, port),
        running_client(relay, tmp_path, "--ports", str(port)),
    ):
        await window.breakpoint(BREAKPOINT)
        await window.press("F5")
        for line in range(BREAKPOINT, BREAKPOINT + 3):
            await window.until_shown(window.call_stack, f"step {SCRIPT} {line}:1 <module>")
            assert 2 == len(await window.lines(window.call_stack))
            await window.press("F10")


@contextlib.asynccontextmanager
async def client_through(chaos: ChaosProxy, relay: LocalRelay, directory: Path, port: int) -> AsyncIterator[Program]:
    """Run a relay-client whose way to the relay leads through a bad network; the block begins when its port is open."""
    environment = access(relay, directory, "send")
    lead_through(chaos, relay, Path(environment["RELAY_CONNECTION_STRING_FILE"]))
    async with program("relay_client", "--hc", HC, "--ports", str(port), env=environment) as client:
        await client.line("ready on")
        yield client


def lead_through(chaos: ChaosProxy, relay: LocalRelay, file: Path) -> None:
    """Replace the relay's port in a connection string file."""
    file.write_text(file.read_text().replace(f":{relay.server.port};", f":{chaos.port};"))
