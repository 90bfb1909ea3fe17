"""Facts about the page of `relay-client --ui` in a real Chromium, with pretended ranks of real agents."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.support.page import BASE_PORT, Job, ServedPage, running_job_of, served_page
from tests.support.relay import LocalRelay

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

pytestmark = pytest.mark.timeout(240)

PICTURES = Path(__file__).resolve().parents[2] / "build" / "page"
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
WITHIN = 60_000
"""Milliseconds."""
WIDE, NARROW = {"width": 1400, "height": 900}, {"width": 400, "height": 800}


@pytest_asyncio.fixture
async def tab() -> AsyncIterator[Page]:
    """An empty tab; errors of the page's code fail the test."""
    playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed: run `make extras`")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed: run `make extras`")
    errors: list[str] = []
    async with playwright.async_playwright() as running:
        browser = await running.chromium.launch(executable_path=chromium, args=FLAGS)
        context = await browser.new_context(viewport=WIDE, permissions=["clipboard-read", "clipboard-write"])
        page = await context.new_page()
        page.set_default_timeout(WITHIN)
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield page
        await browser.close()
    assert [] == errors


def tile(tab: Page, rank: int) -> Locator:
    return tab.locator(f".tile[data-port='{BASE_PORT + rank}']")


async def opened(tab: Page, page: ServedPage, ranks: int) -> None:
    """Open the newest link, and wait until all ranks are shown."""
    await tab.goto(page.links[-1])
    await tab.locator(".tile").nth(ranks - 1).wait_for()


async def until_labelled(tab: Page, rank: int, text: str) -> None:
    """Wait until a rank's tile says this to somebody who cannot see it."""
    await tab.get_by_role("button", name=f"rank {rank}, {text}", exact=True).wait_for()


@pytest.mark.parametrize(("ranks", "per_node"), [(4, 2), (64, 8), (256, 16)])
async def test_a_job(relay: LocalRelay, tab: Page, ranks: int, per_node: int) -> None:
    """Ranks wait, stop, crash, leave and return; each is shown as it is, on a wide, narrow, light or dark page."""
    async with (
        running_job_of(relay, ranks, per_node) as job,
        served_page(relay) as page,
        AsyncExitStack() as stack,
    ):
        await opened(tab, page, ranks)
        assert f"{ranks // per_node} nodes, {ranks} ranks" == await tab.locator("#link").inner_text()
        job.change(0, state="waiting")
        job.change(2, state="crashed", detail="ValueError: <b>bad</b>")
        await page.stop(stack, 1)
        await until_labelled(tab, 0, "waiting for a debugger")
        await until_labelled(tab, 1, "stopped at train.py:10")
        await until_labelled(tab, 2, "crashed: ValueError: <b>bad</b>")
        await until_labelled(tab, 3, "running")
        await tile(tab, 1).click()
        await tab.get_by_role("heading", name=f"rank 1 of {ranks} stopped").wait_for()
        assert "1 ‖ stopped" == " ".join((await tab.locator("#counts .stopped").inner_text()).split())
        stopped = await tab.locator("#stopped").inner_text()
        assert "train.py:10 in train0" in stopped
        assert "crashed: ValueError: <b>bad</b>" in stopped
        await leaves_and_returns(tab, job, ranks)
        await pictures(tab, f"{ranks}-ranks")


async def leaves_and_returns(tab: Page, job: Job, ranks: int) -> None:
    node, port = job.nodes[0], BASE_PORT + 3 % job.per_node
    rank = port - BASE_PORT
    process = node.processes[port]
    job.end(rank)
    await tab.locator("#events", has_text=f"rank {rank} on node-0 has ended").wait_for()
    await tab.locator("#link", has_text=f"{ranks - 1} ranks").wait_for()
    node.put(process)
    await tab.locator("#link", has_text=f"{ranks} ranks").wait_for()


async def pictures(tab: Page, name: str) -> None:
    """Keep pictures; the sections follow each other without a gap, and nothing is wider than a narrow window."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    assert await top_of(tab, "#stacks-section") - await bottom_of(tab, "#map") < 20
    await tab.screenshot(path=PICTURES / f"{name}-light.png", full_page=True)
    await tab.emulate_media(color_scheme="dark")
    await tab.screenshot(path=PICTURES / f"{name}-dark.png", full_page=True)
    await tab.set_viewport_size(NARROW)
    await tab.screenshot(path=PICTURES / f"{name}-narrow.png", full_page=True)
    box = await tab.locator("main").bounding_box()
    assert box is not None
    assert box["width"] <= NARROW["width"]
    tiles = await tab.locator(".tile").all()
    edges = [await tile.bounding_box() for tile in (tiles[0], tiles[-1])]
    assert all(edge is not None and edge["x"] + edge["width"] <= NARROW["width"] for edge in edges)


async def top_of(tab: Page, selector: str) -> float:
    return float(await tab.evaluate(f"document.querySelector('{selector}').getBoundingClientRect().top"))


async def bottom_of(tab: Page, selector: str) -> float:
    return float(await tab.evaluate(f"document.querySelector('{selector}').getBoundingClientRect().bottom"))


async def test_narrow_window(relay: LocalRelay, tab: Page) -> None:
    """The stopped ranks are above the map, a chosen rank is scrolled into view, and the times do not overlap."""
    await tab.set_viewport_size(NARROW)
    async with running_job_of(relay, 64, 8), served_page(relay) as page:
        await opened(tab, page, 64)
        assert await bottom_of(tab, "#stopped") < await top_of(tab, "#map")
        await tile(tab, 63).click()
        await tab.get_by_role("heading", name="rank 63 of 64 running").wait_for()
        assert 0 <= await top_of(tab, "#rank") < NARROW["height"]
        times = await tab.locator("#lanes svg > text[text-anchor]").all()
        boxes = [box for each in times if (box := await each.bounding_box()) is not None]
        assert [] == [one for one, other in pairwise(boxes) if one["x"] + one["width"] > other["x"]]


async def test_keyboard_and_actions(relay: LocalRelay, tab: Page) -> None:
    """A rank is chosen and copied with the keyboard alone, and the link attaches in VS Code."""
    async with running_job_of(relay, 4, 2), served_page(relay) as page:
        await opened(tab, page, 4)
        await tile(tab, 0).focus()
        for key in ("ArrowRight", "ArrowRight", "Enter"):
            await tab.keyboard.press(key)
        await tab.get_by_role("heading", name="rank 2 of 4 running").wait_for()
        attach = tab.get_by_role("link", name="Attach in VS Code")
        assert "vscode://relay-debug.relay-debug/attach?rank=2&hc=myhc" == await attach.get_attribute("href")
        await tab.get_by_role("button", name="Copy command").press("Enter")
        await tab.get_by_role("button", name="Copied").wait_for()
        assert "relay-client attach 2" == await tab.evaluate("navigator.clipboard.readText()")


async def test_a_change_of_one_node(relay: LocalRelay, tab: Page) -> None:
    """Only the node that has changed is drawn again, and the focus stays on the rank."""
    async with running_job_of(relay, 4, 2) as job, served_page(relay) as page:
        await opened(tab, page, 4)
        await tile(tab, 1).focus()
        await tab.evaluate(f"""for (const port of [{BASE_PORT}, {BASE_PORT + 2}])
            document.querySelector(`.tile[data-port='${{port}}']`).wasDrawnBefore = true;""")
        job.change(0, state="crashed")
        await until_labelled(tab, 0, "crashed")
        assert [None, True] == [await tile(tab, rank).evaluate("tile => tile.wasDrawnBefore") for rank in (0, 2)]
        assert await tile(tab, 1).evaluate("tile => tile === document.activeElement")


async def test_the_link_in_the_address(relay: LocalRelay, tab: Page) -> None:
    """The token disappears from the address, a reload keeps the session, and a used link is refused with the reason."""
    async with running_job_of(relay, 2, 2), served_page(relay) as page:
        await opened(tab, page, 2)
        assert page.address == tab.url
        await tab.reload()
        await tile(tab, 1).wait_for()
        other = await tab.context.new_page()
        await other.goto(page.links[0])
        await other.get_by_text("this link has been used, or belongs to another relay-client").wait_for()


async def test_filter(relay: LocalRelay, tab: Page) -> None:
    """A state that is chosen in the summary fades the other ranks."""
    async with running_job_of(relay, 4, 2) as job, served_page(relay) as page:
        job.change(3, state="crashed")
        await opened(tab, page, 4)
        await tab.get_by_role("button", name=re.compile("1 ✕ crashed")).click()
        await tab.locator(".tile.faded").nth(2).wait_for()
        assert 3 == await tab.locator(".tile.faded").count()


async def test_relay_client_exits(relay: LocalRelay, tab: Page) -> None:
    """The page says that relay-client does not answer any more."""
    async with AsyncExitStack() as stack:
        page = await stack.enter_async_context(served_page(relay))
        await tab.goto(page.links[-1])
        await tab.get_by_text("No agent is connected.").wait_for()
        await stack.aclose()
        await tab.get_by_role("alert").get_by_text("relay-client is not running any more").wait_for()
