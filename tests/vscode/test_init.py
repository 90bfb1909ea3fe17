"""Facts about what `relay-client init vscode` writes, used unmodified in a real VS Code."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from tests.support.editors.vscode.editor import Editor
from tests.support.editors.vscode.jobs import waiting_job
from tests.support.editors.vscode.window import Window
from tests.support.editors.vscode.workspace import BREAKPOINT
from tests.support.jobs.running import access
from tests.support.machine.ports import consecutive_ports, free_port, until_closed
from tests.support.machine.programs import program, run
from tests.support.network.relay import HC, LocalRelay

pytestmark = [pytest.mark.vscode, pytest.mark.xdist_group("vscode"), pytest.mark.asyncio(loop_scope="package")]


async def test_f5_starts_relay_client(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """With the files of `relay-client init vscode`, F5 starts one relay-client for all ranks, and uses it again."""
    ports = consecutive_ports(2)
    options = ("--debug-ranks", "all")
    async with (
        editor.window() as window,
        waiting_job(editor.workspace, relay, tmp_path, ports[0], *options, RANK="0", WORLD_SIZE="2"),
        waiting_job(editor.workspace, relay, tmp_path / "other", ports[0], *options, RANK="1", WORLD_SIZE="2"),
    ):
        await init(editor, relay, ports, relay.connection_file(tmp_path, "send"))
        await window.clear()
        try:
            await window.breakpoint(BREAKPOINT)
            await window.start("Relay: each rank")
            for rank in (0, 1):
                await window.until_shown(window.call_stack, f"Relay: rank {rank} Paused On Breakpoint")
            await window.press("Shift+F5")
            await window.until_ended()
            (started,) = clients_of(ports)
            await window.start("Relay: rank 1")
            await window.until_stopped()
            assert [started] == clients_of(ports)
            await window.press("Shift+F5")
            await window.until_ended()
        finally:
            await window.command("workbench.action.tasks.terminate", "relay-client")
        for port in ports:
            await until_closed(port)


async def test_f5_uses_a_relay_client_that_is_running(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """F5 attaches through a relay-client that was started in a terminal, which opens the missing port."""
    (other, port), connection = consecutive_ports(2), relay.connection_file(tmp_path, "send")
    env = {**access(relay, tmp_path, "send"), "RELAY_CLIENT_DIR": str(editor.client_directory)}
    async with (
        editor.window() as window,
        waiting_job(editor.workspace, relay, tmp_path, port),
        program("relay_client", "--hc", HC, "--ports", str(other), env=env) as client,
    ):
        await client.line("ready on")
        await init(editor, relay, [other, port], connection)
        await window.clear()
        await window.breakpoint(BREAKPOINT)
        await window.start("Relay: rank 1")
        await window.until_stopped()
        await window.until_shown(window.variables, "number = 0")
        while [client.process.pid] != clients_of([other]):  # the one that F5 has started exits
            await asyncio.sleep(0.05)
        await window.press("Shift+F5")
        await window.until_ended()


async def test_relay_client_is_killed(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """When relay-client is killed at a breakpoint, the session ends, and F5 starts another one and stops again."""
    port = free_port()
    async with (
        editor.window() as window,
        waiting_job(editor.workspace, relay, tmp_path, port) as job,
        ended_task(window, port),
    ):
        await init(editor, relay, [port], relay.connection_file(tmp_path, "send"))
        await window.clear()
        await window.breakpoint(BREAKPOINT)
        await window.press("F5")
        await window.until_stopped()
        (killed,) = clients_of([port])
        os.kill(killed, signal.SIGKILL)
        await window.until_ended()
        await window.press("F5")
        await window.until_stopped()
        assert [killed] != clients_of([port])
        assert job.process.returncode is None
        await window.press("Shift+F5")
        await window.until_ended()


async def test_relay_client_cannot_start(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """If relay-client cannot start, F5 opens a box, and the Problems view shows the reason once."""
    port = free_port()
    connection = relay.connection_file(tmp_path, "send")
    await init(editor, relay, [port], connection)
    connection.unlink()
    async with editor.window() as window, ended_task(window, port):
        await window.press("F5")
        await window.until_shown(window.dialog, "Error exists after running preLaunchTask 'relay-client'.")
        await window.dialog.get_by_text("Show Errors").click()
        rows = await window.until_shown(window.problems, f"cannot read {connection}: No such file or directory")
        assert 1 == sum("No such file or directory" in row for row in rows)


async def init(editor: Editor, relay: LocalRelay, ports: list[int], connection: Path) -> None:
    """Run `relay-client init vscode --write` in the project, which has no .vscode yet."""
    editor.workspace.clear()
    where = ["--hc", HC, "--ports", f"{ports[0]}-{ports[-1]}", "--folder", str(editor.workspace.folder)]
    credentials = ["--connection-string-file", str(connection), "--ca-file", str(relay.ca_file)]
    done = await run("relay_client", "init", "vscode", *where, *credentials, "--write")
    assert 0 == done.status, done.stderr


def clients_of(ports: list[int]) -> list[int]:
    """Return the pids of the relay-clients with a list of ports that begins with the first of these."""
    started = [(each.pid, each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"])]
    return [pid for pid, line in started if "--ports" in line and any(word.startswith(str(ports[0])) for word in line)]


@contextlib.asynccontextmanager
async def ended_task(window: Window, port: int) -> AsyncIterator[None]:
    """End the task that F5 has started at the end of a block, as a user does."""
    try:
        yield
    finally:
        await window.command("workbench.action.tasks.terminate", "relay-client")
        await window.press("Escape")  # the list that opens if no task is running
    await until_closed(port)
