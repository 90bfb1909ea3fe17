"""Facts about the buttons of the page, with a real job, a real relay-client, real debuggers and a real Chromium."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from relay_client.dap import DapClient
from tests.support.jobs.running import access, ranks_launcher, running_client, running_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import consecutive_ports, free_port
from tests.support.machine.programs import Program, program
from tests.support.network.relay import HC, LocalRelay

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = pytest.mark.job

NAME = "tr\x1b[31m\u202eain.py"
SCRIPT = """\
import itertools, time
for number in itertools.count():
    square = number * number
    time.sleep(0.02)
"""
LINE = 3
RECORD = """() => {
    const kindOf = ({id, dataset, parentElement}) =>
        id || (dataset.filter && 'count') || dataset.key?.replace(/ \\S+ \\d+$/, '') || parentElement.id;
    const controls = 'button, a[href], input, select, summary';
    const shown = () => [...document.querySelectorAll(controls)].filter(each => each.checkVisibility());
    window.seen = new Set(), window.used = new Set();
    window.look = () => shown().forEach(each => seen.add(kindOf(each)));
    document.addEventListener('click', event => {
        look();
        const control = event.target.closest(controls);
        if (control) used.add(kindOf(control));
    }, true);
}"""
"""Records which kinds of controls the page has shown, and which of them were clicked."""


@contextlib.asynccontextmanager
async def stopped_rank(relay: LocalRelay, directory: Path, name: str = "train.py") -> AsyncIterator[Program]:
    """A job of two ranks, and a relay-client with a page whose editor has stopped rank 0; yields it."""
    (script := directory / name).write_text(SCRIPT)
    port, _ = consecutive_ports(2)
    options = ("--port", str(port), "--debug-ranks", "none")
    async with (
        running_job(relay, script, *options, launcher=ranks_launcher(2), cwd=directory),
        running_client(relay, directory, "--ports", f"{port}-{port + 1}", "--ui") as client,
        await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor,
    ):
        await editor.attach({str(script): [{"line": LINE}]}, within=DEADLINE)
        stopped = await editor.wait_for_event("stopped", within=DEADLINE)
        arguments = {"threadId": stopped["body"]["threadId"], "levels": 1}
        await editor.request("stackTrace", arguments, within=DEADLINE)
        yield client


async def test_every_control(relay: LocalRelay, tab: Page, tmp_path: Path) -> None:
    """Each button, link and field does what it is for; a file name is copied without its control characters."""

    async def copied(label: str) -> str:
        await tab.get_by_role("button", name=label, exact=True).first.click()
        await tab.locator(f"[data-key='copy {label}']", has_text="Copied").wait_for()
        return str(await tab.evaluate("navigator.clipboard.readText()"))

    result = tab.locator("#result")
    async with stopped_rank(relay, tmp_path, NAME) as client:
        await tab.goto(client.stderr.partition("works once): ")[2].split()[0])
        await tab.locator("#stopped button").wait_for()
        await tab.evaluate(RECORD)
        await tab.get_by_role("button", name="1 ▸ running").click()
        assert 1 == await tab.locator(".tile.faded").count()
        await tab.locator(".tile").nth(1).click()
        await tab.get_by_role("heading", name="rank 1 of 2 running").wait_for()
        await tab.locator("#stopped button").click()
        await tab.get_by_role("heading", name="rank 0 of 2 stopped").wait_for()
        assert "relay-client attach 0" == await copied("Copy command")
        location = await copied("Copy location")
        assert (True, f":{LINE}") == (location.isprintable(), location[-2:])
        await tab.locator("dd", has_text=location.removesuffix(f":{LINE}")).wait_for()
        await tab.get_by_role("button", name="Stacks", exact=True).click()
        await result.locator(".group").first.wait_for()
        assert all(line.isprintable() for line in (await copied("Copy")).split("\n"))
        await tab.get_by_role("button", name="Find missing ranks").click()
        await result.get_by_text("torch is not imported").wait_for()
        await tab.get_by_label("Ranks", exact=True).click()
        await tab.get_by_label("Ranks", exact=True).select_option("in rank 0")
        await tab.get_by_label("Path of a value").click()
        await tab.get_by_label("Path of a value").fill("number")
        await tab.get_by_role("button", name="Read", exact=True).click()
        await result.get_by_text("rank 0").wait_for()
        await tab.get_by_role("button", name="Compare", exact=True).click()
        await result.get_by_text("rank 1").wait_for()
        await tab.get_by_text("more: starts and connections").click()
        await tab.locator("#other-events li").first.wait_for()
        await tab.get_by_role("link", name="Attach in VS Code").click()
        assert [] == await tab.evaluate("(look(), [...seen].filter(kind => !used.has(kind)))")


async def test_a_rank_whose_client_was_killed(relay: LocalRelay, tab: Page, tmp_path: Path) -> None:
    """It has a state of its own, tops the stopped ranks, and offers the command that lets it continue."""
    elsewhere = access(relay, tmp_path, "send", RELAY_CLIENT_DIR=str(tmp_path / "elsewhere"))
    forward = f"{free_port()}:{free_port()}"
    async with (
        stopped_rank(relay, tmp_path) as client,
        program("relay_client", "--hc", HC, "--forward", forward, "--ui", env=elsewhere) as other,
    ):
        await tab.goto((await other.line("works once")).split()[-1])
        await tab.get_by_role("button", name="1 ‖ stopped").wait_for()
        client.process.kill()
        await tab.get_by_role("button", name="1 ⊘ stopped, client gone").wait_for()
        row = tab.locator("#stopped li").first
        assert "(not connected)" in await row.locator("strong").inner_text()
        await row.get_by_role("button").click()
        await tab.get_by_role("heading", name="rank 0 of 2 stopped, client gone").wait_for()
        await tab.get_by_role("button", name="Copy release command").click()
        await tab.get_by_role("button", name="Copied", exact=True).wait_for()
        assert "relay-client release 0" == await tab.evaluate("navigator.clipboard.readText()")
