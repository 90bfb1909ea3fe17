"""Facts about the page of a job with many ranks: what is folded, grouped and sorted, in a real Chromium."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.network.relay import LocalRelay, local_relay
from tests.support.systems.page import BASE_PORT, Job, bottom_of, opened, running_job_of, served_page, top_of

if TYPE_CHECKING:
    from playwright.async_api import Page

PER_NODE = 8
FEW, MANY = (lanes * 18 + 20 for lanes in (4, 16))
"""Heights of the timeline, in pixels: usually, and at most."""
CRASH = {"state": "crashed", "detail": "KeyError: 'height'"}
LANES = """selector => [...document.querySelectorAll(selector + ' svg > text:not([text-anchor])')].map(
    each => each.textContent)"""
COUNT_ADDED = """() => {
    window.added = 0;
    const count = node => 1 + (node.querySelectorAll?.('*').length ?? 0);
    const sum = changes => changes.forEach(({addedNodes}) => addedNodes.forEach(node => { added += count(node); }));
    new MutationObserver(sum).observe(document.body, {childList: true, subtree: true});
}"""
"""Counts the elements and texts that are added to the page."""


@contextlib.asynccontextmanager
async def open_page(relay: LocalRelay, tab: Page, ranks: int) -> AsyncIterator[Job]:
    """Open the page of a job, and wait until all its nodes are connected."""
    async with running_job_of(relay, ranks, PER_NODE) as job, served_page(relay) as page:
        await opened(tab, page, ranks)
        await tab.get_by_role("button", name=f"{ranks} ▸ running").wait_for()
        yield job


def strip(nodes: int) -> re.Pattern[str]:
    return re.compile(f"{nodes} nodes, {PER_NODE * nodes} ranks running")


async def heights(tab: Page) -> tuple[int, float]:
    """Return the height of the page without the lanes of its timeline, and that of the lanes.

    A node that is slow on a busy machine loses its connection for a moment, and then has a lane.
    """
    lanes = await tab.evaluate("document.querySelector('#lanes svg').getBoundingClientRect().height")
    return await tab.evaluate("document.documentElement.scrollHeight") - lanes, lanes


async def test_a_thousand_ranks(tab: Page, tls_directory: Path) -> None:
    """The page is not much higher than a window, and a change of one rank redraws its node, also when all are shown."""
    async with local_relay(tls_directory, size=6) as relay, open_page(relay, tab, 1000) as job:
        await tab.get_by_text(strip(125)).wait_for()
        assert 0 == await tab.locator(".tile").count()
        for rank in (40, 41, 300):
            job.change(rank, **CRASH)
        job.change(999, state="waiting")
        await tab.get_by_text(strip(122)).wait_for()
        assert 3 * PER_NODE == await tab.locator(".tile").count()
        rest, lanes = await heights(tab)
        assert (True, True) == (rest < 1100 - FEW, lanes <= MANY)
        await tab.get_by_text(strip(122)).click()
        assert 1000 == await tab.locator(".tile").count()
        rest, lanes = await heights(tab)
        assert (True, True) == (rest < 1300 - FEW, lanes <= MANY)
        await tab.evaluate(COUNT_ADDED)
        job.change(500, **CRASH)
        await tab.get_by_text(strip(121)).wait_for()
        await tab.locator("#lanes", has_text="node 62").wait_for()
        assert 400 > await tab.evaluate("added")


async def test_strips(relay: LocalRelay, tab: Page) -> None:
    """A strip is opened with the keyboard or by its state's count; the node of the selected rank stays visible."""
    async with open_page(relay, tab, 96) as job:
        job.change(0, **CRASH)
        await tab.get_by_text(strip(11)).wait_for()
        await tab.locator("#nodes summary").focus()
        await tab.keyboard.press("Enter")
        await tab.locator(f".tile[data-port='{BASE_PORT + 50}']").click()
        await tab.locator("#nodes summary").press("Enter")
        await tab.get_by_text(strip(10)).wait_for()
        assert ["node 0 (node-0)", "node 6 (node-6)"] == [
            await node.get_attribute("aria-label") for node in await tab.get_by_role("group", name="node").all()
        ]
        await tab.get_by_role("button", name="95 ▸ running").click()
        await tab.get_by_text(strip(11)).wait_for()
        assert 96 == await tab.locator(".tile").count()
        assert await bottom_of(tab, "#rank") < await top_of(tab, "#inspect") < await top_of(tab, "#timeline")


async def test_a_wave_of_waiting_ranks(relay: LocalRelay, tab: Page) -> None:
    """It is one strip and one line, below the crashes; a screen reader reads the crash first, and the wave once."""
    async with open_page(relay, tab, 96) as job:
        job.change(17, **CRASH)
        for rank in range(32):
            if rank != 17:
                job.change(rank, state="waiting")
        await tab.locator("#announcement", has_text="crashed").wait_for()
        announced = await tab.locator("#announcement").inner_text()
        assert announced.startswith("rank 17 on node-2 crashed: KeyError: 'height'")
        await tab.locator("#recent", has_text="ranks 0-16,18-31 are waiting for a debugger").wait_for()
        assert ["×31"] == await tab.locator("#recent b").all_inner_texts()
        assert ["rank 17 on node-2 crashed: KeyError: 'height'"] == await tab.locator("#crashes span").all_inner_texts()
        assert await top_of(tab, "#crashes") < await top_of(tab, "#recent")
        for rank in range(32, 96):
            job.change(rank, state="waiting")
        await tab.get_by_text("11 nodes, 88 ranks waiting for a debugger").wait_for()
        await tab.locator("#recent b", has_text="×95").wait_for()
        assert announced.count("waiting") <= 1
        assert announced == await tab.locator("#announcement").inner_text()


async def test_order_of_the_timeline(relay: LocalRelay, tab: Page) -> None:
    """Nodes with crashed ranks are on top, then those with waiting ranks; the others are folded."""
    async with open_page(relay, tab, 96) as job:
        for number in (3, 5, 7):
            job.change(number * PER_NODE, state="waiting")
        job.change(10 * PER_NODE, **CRASH)
        names = [f"node {number} (node-{number})" for number in (10, 3, 5, 7)]
        await tab.wait_for_function(f"names => String(({LANES})('#lanes')) === String(names)", arg=names)
        await tab.get_by_text("8 more nodes with nothing to report").click()
        await tab.locator("#other-lanes svg").wait_for()
        assert 8 == len(await tab.evaluate(LANES, "#other-lanes"))
