"""Facts about debug sessions in a real VS Code, through a real relay: what a user sees from F5 on."""

import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from relay_client.demo.chaos import ChaosProxy
from tests.support.ports import consecutive_ports, free_port, until_closed
from tests.support.programs import Program, program
from tests.support.relay import HC, LocalRelay
from tests.support.run_job import access, running_client
from tests.support.vscode.editor import Editor
from tests.support.vscode.installation import ROOT
from tests.support.vscode.jobs import waiting_job
from tests.support.vscode.workspace import BREAKPOINT, SCRIPT, attach

pytestmark = [pytest.mark.vscode, pytest.mark.xdist_group("vscode"), pytest.mark.asyncio(loop_scope="module")]

GUIDE = ROOT / "docs" / "guides" / "vscode.md"


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


async def test_f5_starts_relay_client(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """F5 runs the task of docs/guides/vscode.md, waits until relay-client is ready, and stops at the breakpoint."""
    port = free_port()
    secrets = ["--connection-string-file", str(relay.connection_file(tmp_path, "send"))]
    tasks = documented_tasks("--ports", str(port), *secrets, "--ca-file", str(relay.ca_file))
    editor.workspace.write("tasks.json", tasks)
    async with (
        editor.window(attach("rank 0", port, preLaunchTask="relay-client")) as window,
        waiting_job(editor.workspace, relay, tmp_path, port),
    ):
        try:
            await window.breakpoint(BREAKPOINT)
            await window.press("F5")
            await window.until_stopped()
            await window.until_shown(window.variables, "number = 0")
        finally:
            await window.command("workbench.action.tasks.terminate", "relay-client")
        await until_closed(port)


def documented_tasks(*arguments: str) -> dict[str, Any]:
    """Return the tasks.json of docs/guides/vscode.md, with the arguments of this test's relay-client."""
    block = re.search(r"```jsonc\n// .vscode/tasks.json\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert block is not None
    tasks = json.loads(block[1])
    tasks["tasks"][0]["args"] = ["--hc", HC, *arguments]
    return tasks


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
