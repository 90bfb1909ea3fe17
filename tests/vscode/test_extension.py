"""Facts about the extension of `vscode/` in a real VS Code: ranks without launch.json, and what its user sees."""

import asyncio
import contextlib
import itertools
import json
import re
import sys
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from relay_core.compat import timeout
from tests.support.editors.vscode.editor import Editor, running_editor
from tests.support.editors.vscode.installation import ROOT, Installation
from tests.support.editors.vscode.jobs import RANKS_PROGRAM, RANKS_SCRIPT, waiting_job
from tests.support.editors.vscode.parts import (
    choices,
    choose,
    close_dialog,
    open_url,
    ranks,
    run_command,
    snapshots,
    status_bar,
    write_settings,
)
from tests.support.editors.vscode.window import Window
from tests.support.editors.vscode.workspace import BREAKPOINT, PROGRAM, SCRIPT, attach
from tests.support.jobs.many_ranks import Ranks, line_of
from tests.support.jobs.running import access
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import Program, program
from tests.support.network.fleet import KEY, node_of
from tests.support.network.relay import HC, LocalRelay, local_relay

pytestmark = [pytest.mark.vscode, pytest.mark.xdist_group("vscode-extension"), pytest.mark.asyncio(loop_scope="module")]

EXTENSION = ROOT / "build" / "relay-debug.vsix"
GPU = "terminal.integrated.gpuAcceleration"
SOON = DEADLINE / 9
"""Seconds: 10 on an idle machine, within which agent and relay-client try again, and a margin."""
MAX_SIZE = 60_000
"""Bytes of the package."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def editor(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Editor]:
    """VS Code with the extension, started once for this file."""
    if not EXTENSION.exists():
        pytest.skip("the extension is not packed: run make vsix")
    directory = tmp_path_factory.mktemp("extension")
    async with running_editor(installation, directory, ROOT / "build" / "vscode", extensions=[EXTENSION]) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def relay(tls_directory: Path) -> AsyncIterator[LocalRelay]:
    """A running relay with one hybrid connection, in the event loop of this file."""
    async with local_relay(tls_directory) as running:
        yield running


@contextlib.asynccontextmanager
async def job_and_client(
    editor: Editor, relay: LocalRelay, directory: Path, *job_options: str
) -> AsyncIterator[tuple[Window, Program, Program]]:
    """Run a job whose rank 0 waits, and a relay-client whose own port leads elsewhere; the window shows the rank."""
    options = ("--hc", HC, "--ports", str(free_port()))
    env = {**access(relay, directory, "send"), "RELAY_CLIENT_DIR": str(editor.client_directory)}
    async with (
        waiting_job(editor.workspace, relay, directory, free_port(), *job_options) as job,
        program("relay_client", *options, env=env) as client,
        editor.window() as window,
    ):
        await window.until_shown(status_bar(window), "1 rank")
        await status_bar(window).click()  # shows the view, which VS Code leaves closed at first
        yield window, job, client


COUNT = line_of(RANKS_PROGRAM, "number += 1")


FIRST_AFTER_CLICK = """() => { window.firstAfterClick = new Promise((resolve) => {
  const rows = () => document.querySelector('.pane:has([aria-label="Ranks Section"]) .monaco-list-row');
  const clicked = () => {
    new MutationObserver(() => rows() && resolve("rows")).observe(document.body, { subtree: true, childList: true });
    setTimeout(() => resolve("timer"), 2000);
  };
  window.addEventListener("mouseup", clicked, { capture: true, once: true });
}); }"""
"""What comes first once the user has opened the view: its rows, or the end of the 2,000 ms after which VS Code lays out
a view that is opened for the first time. Both are in one page, so a slow page delays both."""


async def test_four_ranks_in_one_session(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """All ranks are shown; in one session they stop, step together or in groups, and are compared; an ending stays."""
    editor.workspace.write_script(RANKS_SCRIPT, RANKS_PROGRAM)
    node = editor.workspace.copy(tmp_path / "job")
    env = {**access(relay, tmp_path, "send"), "RELAY_CLIENT_DIR": str(editor.client_directory)}
    async with (
        Ranks(relay, node / RANKS_SCRIPT, 4) as job,
        program("relay_client", "--hc", HC, "--ports", str(free_port()), env=env),
        editor.window() as window,
    ):
        await window.until_shown(status_bar(window), "4 ranks")
        await window.page.evaluate(FIRST_AFTER_CLICK)
        await status_bar(window).click()  # no test has opened the view in this window
        assert "rows" == await window.page.evaluate("() => window.firstAfterClick")
        await window.open(RANKS_SCRIPT)
        await window.breakpoint(COUNT, RANKS_SCRIPT)
        await window.command("relayDebug.attachAll")
        await window.until_stopped()
        await window.until_shown(window.console, f"ranks 0-3 at {RANKS_SCRIPT}:{COUNT}")
        await window.until_shown(window.call_stack, "rank 3 · MainThread")
        await window.until_shown(window.variables, "weights = ndarray[64, 32] float32")
        await window.screenshot(ROOT / "build" / "vscode" / "four_ranks.png")
        await window.press("F10")
        await window.until_shown(window.console, f"ranks 0-3 at {RANKS_SCRIPT}:{COUNT + 1}")

        choosing = await run_command(window, "relayDebug.group")
        await choices(window).first.wait_for()
        await window.command("workbench.action.focusActiveEditorGroup")  # as a stop of one more rank does
        await choose(window, "ranks...")
        field = window.page.locator(".quick-input-box input")
        await window.page.get_by_text("Ranks that step together").wait_for()
        await field.fill("0,2")
        await field.press("Enter")
        await choosing
        await window.step()
        places = f"ranks 1, 3 at {RANKS_SCRIPT}:{COUNT + 1}", f"ranks 0, 2 at {RANKS_SCRIPT}:{COUNT + 2}"
        for place in places:
            await window.until_shown(window.console, place)

        await window.evaluate("@diff weights")
        await window.until_shown(
            window.console, "rank 2 first differs at the value (64, 32) float32, element 100: 7 instead of 0.5"
        )
        await window.command("relayDebug.hang")
        await window.until_shown(window.page.locator(".editor-instance .view-line"), "ranks 0-3")
        job.kill(3)
        await window.until_shown(ranks(window), "rank 3was killed by SIGKILL")


async def test_snapshots(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """Snapshots of running ranks are lines with values in the Debug Console, and rows in a view that open the line."""
    editor.workspace.write_script(RANKS_SCRIPT, RANKS_PROGRAM)
    node = editor.workspace.copy(tmp_path / "job")
    env = {**access(relay, tmp_path, "send"), "RELAY_CLIENT_DIR": str(editor.client_directory)}
    async with (
        Ranks(relay, node / RANKS_SCRIPT, 2),
        program("relay_client", "--hc", HC, "--ports", str(free_port()), env=env),
        editor.window() as window,
    ):
        await window.until_shown(status_bar(window), "2 ranks")
        await status_bar(window).click()
        once = "number == globals().setdefault('first', number)"
        await window.breakpoint(COUNT, RANKS_SCRIPT, condition=once, message="@snap number {number}")
        await window.command("relayDebug.attachAll")
        place = f"{RANKS_SCRIPT}:{COUNT}"
        await window.until_shown(window.console, f"rank 1 | snapshot 1 at {place} in <module>, ")
        await window.command("relayDebug.snapshots.focus")
        (shown,) = filter(re.compile("rank 1").match, await window.until_shown(snapshots(window), f"rank 1{place}"))
        assert re.fullmatch(rf"rank 1{re.escape(place)} \d\d:\d\d:\d\d: number \d+", shown)
        for line, below in (("rank 1 | snapshot 1", "<module> = "), ("<module> = ", "weights = ndarray[64, 32]")):
            await window.console.filter(has_text=line).first.click()
            await window.press("ArrowRight")
            await window.until_shown(window.console, below)
        row = snapshots(window).filter(has_text="rank 1")
        await row.click()
        await window.page.locator(f'.tab.active[data-resource-name="{RANKS_SCRIPT}"]').wait_for()
        await row.locator(".monaco-tl-twistie").click()
        await window.until_shown(snapshots(window), "weightsndarray[64, 32] float32")
        await window.screenshot(ROOT / "build" / "vscode" / "snapshots.png")
        await window.command("relayDebug.clearSnapshots")
        await window.page.get_by_text("A logpoint whose message begins with @snap").wait_for()


async def test_the_package_is_small() -> None:
    """It has no dependencies, and loads in no time."""
    if not EXTENSION.exists():
        pytest.skip("the extension is not packed: run make vsix")
    assert EXTENSION.stat().st_size < MAX_SIZE


async def test_ranks_are_in_the_run_drop_down(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """Without any launch.json a rank is offered by its name, and choosing it stops at the breakpoint."""
    async with job_and_client(editor, relay, tmp_path) as (window, *_):
        await window.breakpoint(BREAKPOINT)
        choosing = await run_command(window, "workbench.action.debug.selectandstart")
        await choose(window, "Python Debugger...")
        await window.until_shown(choices(window), "rank 0 on ")
        assert 1 == await choices(window).count()
        await choose(window, "rank 0 on ")
        await window.until_stopped()
        await window.until_shown(window.call_stack, f"step {SCRIPT} {BREAKPOINT}:1")
        await choosing


async def test_one_port_of_two_jobs(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """The rank to which the port does not lead is unreachable; its button shows that, and "rank 0" is the other."""
    port = free_port()
    env = {**access(relay, tmp_path, "send"), "RELAY_CLIENT_DIR": str(editor.client_directory)}
    async with (
        waiting_job(editor.workspace, relay, tmp_path / "a", port) as first,
        waiting_job(editor.workspace, relay, tmp_path / "b", port),
        program("relay_client", "--hc", HC, "--ports", str(free_port()), env=env),
        editor.window() as window,
    ):
        await window.until_shown(status_bar(window), "2 ranks")
        await status_bar(window).click()
        row = ranks(window).filter(has_text=f"unreachable: port {port} leads to ")
        await row.hover()
        await row.locator('.action-label[aria-label="Attach to Rank"]').click()
        await window.until_shown(window.notifications, "Give one of the jobs a different --debug-port.")
        await window.command("relayDebug.attach", {"rank": 0})
        await window.until_shown(ranks(window), "attached here")
        assert first.process.returncode is None


async def test_the_tree_and_release(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """The tree shows node and rank, where it is stopped and that this client is attached; a released rank runs."""
    async with job_and_client(editor, relay, tmp_path) as (window, job, _):
        rows = await window.until_shown(ranks(window), "rank 0waiting")
        assert await ranks(window).locator('.action-label[aria-label="Attach to Rank"]').count()
        assert re.fullmatch(r"node 0 \(.+\)([0-9]+ ms|connected|connecting)", rows[0]), rows
        await window.breakpoint(BREAKPOINT)
        await window.command("relayDebug.attach", {"rank": 0})
        await window.until_stopped()
        rows = await window.until_shown(ranks(window), f"{SCRIPT}:{BREAKPOINT} · attached here")
        await window.until_shown(status_bar(window), "1 rank, 1 stopped")
        row = ranks(window).filter(has_text="rank 0")
        await row.hover()
        assert not await row.locator('.action-label[aria-label="Attach to Rank"]').count()
        await row.locator('.action-label[aria-label="Release Rank"]').click()
        await window.until_shown(window.console, "the rank was released on request")
        await window.until_ended()
        await window.until_shown(ranks(window), "rank 0running")
        assert job.process.returncode is None


async def test_saved_fix_changes_the_running_job(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """With the setting `relayDebug.pushOnSave`, the job executes the new code of a file that is saved."""
    options = ("--debug-ranks", "none", "--debug-allow-edit")
    async with job_and_client(editor, relay, tmp_path, *options) as (window, job, _):
        await write_settings(window, {"relayDebug.pushOnSave": True})
        await window.open(SCRIPT)
        await window.command("workbench.action.focusActiveEditorGroup")
        await window.press("Control+Home")
        for _ in range(PROGRAM.splitlines().index("    return square + double")):
            await window.press("ArrowDown")
        await window.press("End")
        await window.page.keyboard.type(" + 1000")
        await window.command("workbench.action.files.save")
        try:
            assert "train.py (sha256 " in await job.line("replaced the code in")
            shown = window.page.locator(".statusbar-item")
            await window.until_shown(
                shown, "train.py: replaced in rank 0 at the same step; takes effect at the next call to step"
            )
        finally:
            editor.workspace.write_script(SCRIPT, PROGRAM)
        evaluate = ("relay_client", "--hc", HC, "eval", "step(1)", "--json")
        async with program(*evaluate, env=access(relay, tmp_path, "send")) as client:
            finished = await client.finish()
        assert "1003" == json.loads(finished.stdout)["groups"][0]["text"], finished.stderr


async def test_relay_client_is_killed(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """A notification shows that the rank stays stopped; through another relay-client, its button lets it continue."""
    async with job_and_client(editor, relay, tmp_path) as (window, job, client):
        await window.breakpoint(BREAKPOINT)
        await window.command("relayDebug.attach", {"rank": 0})
        await window.until_stopped()
        await window.until_shown(ranks(window), "attached here")
        client.process.kill()
        await window.until_shown(
            window.notifications, "was killed, and its debug sessions have ended. Still stopped: rank 0."
        )
        await window.until_ended()
        env = {**access(relay, tmp_path, "send"), "RELAY_CLIENT_DIR": str(editor.client_directory)}
        async with program("relay_client", "--hc", HC, "--ports", str(free_port()), env=env):
            await window.until_shown(ranks(window), f"rank 0not connected · {SCRIPT}:{BREAKPOINT}")
            await window.screenshot(ROOT / "build" / "vscode" / "not_connected.png")
            row = ranks(window).filter(has_text="rank 0")
            await row.hover()
            await row.locator('.action-label[aria-label="Release Rank"]').click()
            await window.until_shown(ranks(window), "rank 0running")
        assert job.process.returncode is None


async def test_texts_of_a_job_are_not_interpreted(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """A variable in a host name is not resolved, and a link in the text of an exception is not a link."""
    key, port = b64encode(KEY).decode(), free_port()
    own = {"RELAY_CLIENT_DIR": str(editor.client_directory), "RELAY_TUNNEL_KEY": key}
    async with (
        node_of(relay, port, fields={"host": "${env:RELAY_CLIENT_DIR}"}, rank=0) as node,
        program("relay_client", "--hc", HC, "--ports", str(port), env=access(relay, tmp_path, "send", **own)),
        editor.window() as window,
    ):
        await window.until_shown(status_bar(window), "1 rank")
        attaching = await run_command(window, "relayDebug.attach", {"rank": 0})
        started = await window.control.report(lambda report: report.what == "started")
        assert re.fullmatch(r"rank 0 on [\w .:()-]+", started.message["name"])
        assert str(editor.client_directory) not in json.dumps(started.message)
        await window.control.call("end")
        await attaching
        detail = "ValueError: out of memory, see [details](command:workbench.action.files.newUntitledFile)"
        node.change(port, state="crashed", detail=detail)
        shown = window.page.locator(".notification-list-item-message")
        await window.until_shown(shown, "out of memory, see (details)")
        assert not await shown.locator("a").count()


async def test_the_relay_is_away_for_twenty_seconds(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """The tree, the status bar and the Debug Console show it; a step pressed meanwhile is taken soon after."""
    async with job_and_client(editor, relay, tmp_path) as (window, *_):
        await window.breakpoint(BREAKPOINT)
        await window.command("relayDebug.attach", {"rank": 0})
        await window.until_shown(window.variables, "number = 0")
        await relay.server.stop()
        back = time.monotonic() + 20
        await window.press("F10")
        await window.until_shown(ranks(window), "reconnecting: cannot connect to ")
        await status_bar(window).locator(".codicon-warning").wait_for()
        await window.until_shown(ranks(window), f"{SCRIPT}:{BREAKPOINT}")  # the step has not reached the job
        await window.until_shown(
            window.console,
            "it will be restored automatically, and steps that you request in the meantime will run then",
        )
        await asyncio.sleep(back - time.monotonic())
        await window.until_shown(ranks(window), f"{SCRIPT}:{BREAKPOINT}")
        await relay.server.start()
        await window.until_shown(window.variables, "square = 0")
        await window.until_shown(ranks(window), f"{SCRIPT}:{BREAKPOINT + 1}")
        assert time.monotonic() < back + SOON
        await window.until_shown(window.console, " was restored after ")
        await status_bar(window).locator(".codicon-server").wait_for()


async def test_a_configuration_listens_on_a_port_of_relay_client(
    editor: Editor, relay: LocalRelay, tmp_path: Path
) -> None:
    """The session connects to the port instead of showing nothing, and a notification explains what to change."""
    port = free_port()
    configuration = {**attach("listener", port), "listen": {"host": "127.0.0.1", "port": port}, "connect": None}
    configuration = {name: value for name, value in configuration.items() if value is not None}
    env = {**access(relay, tmp_path, "send"), "RELAY_CLIENT_DIR": str(editor.client_directory)}
    async with (
        waiting_job(editor.workspace, relay, tmp_path, port),
        program("relay_client", "--hc", HC, "--ports", str(port), env=env),
        editor.window({**configuration, "debugAdapterPython": sys.executable}) as window,
    ):
        await window.until_shown(status_bar(window), "1 rank")
        await window.breakpoint(BREAKPOINT)
        await window.press("F5")
        await window.until_stopped()
        text = f"relay-client has opened port {port}, so 'listener' is connecting"
        await window.until_shown(window.notifications, text)


async def test_a_configuration_listens_without_relay_client(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """The extension offers relay-client, which opens the session's port, stops it with the session, and asks once."""
    port, other = free_port(), free_port()
    configuration = {**attach("listener", port), "listen": {"host": "127.0.0.1", "port": port}}
    del configuration["connect"]
    options = ["--hc", HC, "--connection-string-file", str(relay.connection_file(tmp_path, "send"))]
    settings = {
        "relayDebug.command": str(Path(sys.executable).parent / "relay-client"),
        "relayDebug.arguments": [*options, "--ca-file", str(relay.ca_file), "--ports", str(other)],
    }
    async with (
        waiting_job(editor.workspace, relay, tmp_path, port) as job,
        editor.window({**configuration, "debugAdapterPython": sys.executable}) as window,
    ):
        await write_settings(window, settings)
        await window.breakpoint(BREAKPOINT)
        await window.press("F5")
        await window.until_shown(window.notifications, f"'listener' is listening on port {port}, and no relay-client")
        await window.page.locator(".notification-toast .monaco-button", has_text="Start relay-client").click()
        await window.until_stopped()
        await window.press("Shift+F5")
        await window.until_ended()
        await status_bar(window).wait_for(state="hidden")
        await window.press("F5")
        await window.until_stopped()
        await window.press("Shift+F5")
        await status_bar(window).wait_for(state="hidden")
        assert job.process.returncode is None


async def test_nothing_is_listening(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """A notification names the port and starts relay-client; once one is running, it names the ports of that."""
    port, other = free_port(), free_port()
    env = {**access(relay, tmp_path, "send"), "RELAY_CLIENT_DIR": str(editor.client_directory)}
    async with editor.window(attach("rank 0", port)) as window:
        await window.press("F5")
        text = f"Nothing is listening on port {port}, and relay-client is not running."
        await window.until_shown(window.notifications, text)
        await close_dialog(window)
        await window.page.locator(".notification-toast .monaco-button", has_text="Start relay-client").click()
        await window.page.get_by_placeholder("Start relay-client (1/3)").wait_for()
        await window.page.keyboard.press("Escape")
        async with program("relay_client", "--hc", HC, "--ports", str(other), env=env):
            await window.until_shown(status_bar(window), "0 ranks")
            await window.press("F5")
            text = f"Nothing is listening on port {port}. The running relay-client has opened port {other}."
            await window.until_shown(window.notifications, text)
            await close_dialog(window)


async def test_stacks_of_a_rank(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """They open as a text in a tab that stays, and not in the preview tab; a frame in a file here is a link."""
    async with job_and_client(editor, relay, tmp_path, "--debug-ranks", "none") as (window, *_):
        row = ranks(window).filter(has_text="rank 0")
        await row.hover()
        await row.locator('.action-label[aria-label="Show Stacks"]').click()
        await window.until_shown(window.page.locator(".editor-instance .view-line"), "rank 0 on ")
        await window.page.locator('.tab.active[data-resource-name="stacks of rank 0"]').wait_for()
        stays = '.tab.active[data-resource-name="stacks of rank 0"] .monaco-icon-label:not(.italic)'
        assert 1 == await window.page.locator(stays).count()
        await window.until_shown(window.page.locator(".editor-instance .detected-link"), f"{SCRIPT}:")
        box = await window.page.locator(".editor-instance .detected-link").first.bounding_box()
        # VS Code draws a link anew while Ctrl is held above it, so the element that was found may be gone by the click.
        await window.page.keyboard.down("Control")
        await window.page.mouse.move(box["x"] + 8, box["y"] + 8)
        await window.page.locator(".editor-instance .detected-link-active").first.wait_for()
        await window.page.mouse.click(box["x"] + 8, box["y"] + 8)
        await window.page.keyboard.up("Control")
        await window.page.locator(f'.tab.active[data-resource-name="{SCRIPT}"]').wait_for()


async def test_a_link_attaches(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """A vscode:// link attaches after VS Code has asked; one to a rank that is not there is an error that names it."""
    async with job_and_client(editor, relay, tmp_path) as (window, *_):
        await window.breakpoint(BREAKPOINT)
        await open_url(window, f"vscode://relay-debug.relay-debug/attach?rank=7&hc={HC}")
        await window.until_shown(window.notifications, "rank 7 is not registered.")
        await open_url(window, f"vscode://relay-debug.relay-debug/attach?rank=0&hc={HC}")
        await window.until_stopped()


async def test_a_line_in_a_terminal_attaches(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """The words "attach to rank 0" in the output of any program are a link."""
    async with job_and_client(editor, relay, tmp_path) as (window, *_):
        await write_settings(window, {GPU: "off"})  # lines of a terminal are then elements of the page
        await window.breakpoint(BREAKPOINT)
        await window.command("workbench.action.terminal.new")
        await window.page.locator(".terminal-wrapper.active .xterm-screen").wait_for()
        await window.command("workbench.action.terminal.sendSequence", {"text": "echo attach to rank $((1-1))\r"})
        line = window.page.locator(".terminal-wrapper.active .xterm-rows > div").filter(has_text=re.compile("^attach"))
        box = await line.bounding_box()
        await window.page.keyboard.down("Control")
        async with timeout(DEADLINE):  # until VS Code has asked for links below the pointer
            for step in itertools.count():
                await window.page.mouse.move(box["x"] + 20 + step % 20, box["y"] + box["height"] / 2)
                if await window.page.locator(".xterm-cursor-pointer").count():
                    break
                await asyncio.sleep(0.1)
        await window.page.mouse.down()
        await window.page.mouse.up()
        await window.page.keyboard.up("Control")
        await window.until_stopped()
        await window.command("workbench.action.terminal.killAll")


async def test_start_and_stop(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """The extension starts relay-client with the options in the settings, shows its error, and stops it."""
    port = free_port()
    file = str(relay.connection_file(tmp_path, "send"))
    command = str(Path(sys.executable).parent / "relay-client")
    options = ["--hc", HC, "--connection-string-file", file, "--ca-file", str(relay.ca_file), "--ports"]
    before = {*editor.client_directory.glob("control-*")}
    async with editor.window() as window:
        await write_settings(window, {"relayDebug.command": command, "relayDebug.arguments": [*options, "nonsense"]})
        await window.command("relayDebug.start")
        await window.until_shown(window.notifications, "--ports: invalid list of ports: 'nonsense'")
        await write_settings(window, {"relayDebug.command": command, "relayDebug.arguments": [*options, str(port)]})
        await window.command("relayDebug.start")
        await window.until_shown(status_bar(window), "0 ranks")
        async with waiting_job(editor.workspace, relay, tmp_path, port):
            await window.until_shown(status_bar(window), "1 rank")
        await window.command("relayDebug.stop")
        await status_bar(window).wait_for(state="hidden")
        assert before >= {*editor.client_directory.glob("control-*")}  # sockets of killed clients may have been removed


async def test_the_first_start(editor: Editor, relay: LocalRelay, tmp_path: Path) -> None:
    """The extension asks for a connection file and starts the relay-client of the selected interpreter with its CA."""
    file, port = relay.connection_file(tmp_path, "send"), free_port()
    (tmp_path / "ca.pem").write_bytes(relay.ca_file.read_bytes())
    async with editor.window() as window:
        await write_settings(window, {"python.defaultInterpreterPath": sys.executable})
        starting = await run_command(window, "relayDebug.start")
        await choose(window, "Choose a connection file...")
        field = window.page.locator(".quick-input-box input")
        await window.page.locator(".quick-input-title", has_text="Connection file for relay-client").wait_for()
        await choices(window).filter(has_text=SCRIPT).wait_for()  # then the field has the path of the folder
        await field.fill(str(file))
        await choices(window).filter(has_text=file.name).wait_for()
        await field.press("Enter")
        for number, text in ((2, HC), (3, str(port))):
            await window.page.locator(".quick-input-title", has_text=f"Start relay-client ({number}/3)").wait_for()
            await field.fill(text)
            await field.press("Enter")
        await starting
        await window.until_shown(status_bar(window), "0 ranks")
        settings = json.loads((editor.workspace.folder / ".vscode" / "settings.json").read_text())
        options = ["--connection-string-file", str(file), "--ca-file", str(tmp_path / "ca.pem")]
        assert ["--hc", HC, *options, "--ports", str(port)] == settings["relayDebug.arguments"]
        await window.command("relayDebug.stop")
        await status_bar(window).wait_for(state="hidden")
