"""Facts about the page of `relay-client --ui` in a real Chromium, with pretended ranks of real agents."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.network.relay import LocalRelay
from tests.support.systems.page import BASE_PORT, Job, bottom_of, opened, running_job_of, served_page, top_of

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page


PICTURES = Path(__file__).resolve().parents[2] / "build" / "page"
NARROW = {"width": 400, "height": 800}
GAPS = """[...document.querySelectorAll('#left, #side')].flatMap(({children}) => [...children].slice(1).map(
    (each, index) => each.getBoundingClientRect().top - children[index].getBoundingClientRect().bottom))"""
"""The distances between the sections of each column."""


def tile(tab: Page, rank: int) -> Locator:
    return tab.locator(f".tile[data-port='{BASE_PORT + rank}']")


async def until_labelled(tab: Page, rank: int, text: str) -> None:
    """Wait until a rank's tile has this text in its accessible name."""
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
        await until_labelled(tab, 1, "stopped at train.py:10 (pause)")
        await until_labelled(tab, 2, "crashed: ValueError: <b>bad</b>")
        await until_labelled(tab, 3, "running")
        await tile(tab, 1).click()
        await tab.get_by_role("heading", name=f"rank 1 of {ranks} stopped").wait_for()
        assert "1 ‖ stopped" == " ".join((await tab.locator("#counts .stopped").inner_text()).split())
        crashed, stopped = await tab.locator("#stopped li").all_inner_texts()
        assert "crashed: ValueError: <b>bad</b>" in crashed
        assert "train.py:10 in train0" in stopped
        await leaves_and_returns(tab, job, ranks)
        await only_what_concerns_a_person(tab)
        await pictures(tab, f"{ranks}-ranks")


async def leaves_and_returns(tab: Page, job: Job, ranks: int) -> None:
    node, port = job.nodes[0], BASE_PORT + 3 % job.per_node
    rank = port - BASE_PORT
    process = node.processes[port]
    await tile(tab, rank).click()
    job.end(rank, 3)
    ended = f"rank {rank} on node-0 (pid {4000 + rank}) ended with status 3"
    for part in ("#events", "#rank", "#announcement"):
        await tab.locator(part, has_text=ended).wait_for()
    await tab.locator(".node", has_text=f"rank {rank} ended with status 3").wait_for()
    await tab.locator("#link", has_text=f"{ranks - 1} ranks").wait_for()
    node.put(process)
    await tab.locator("#link", has_text=f"{ranks} ranks").wait_for()


async def only_what_concerns_a_person(tab: Page) -> None:
    """Starts and connections are in a folded list, and each fact is one line."""
    texts = await tab.locator("#events li span").all_inner_texts()
    assert [] == [text for text in texts if re.search("port|connected|is running", text)]
    assert ["rank 1 on node-0 is stopped at train.py:10 (pause)"] == [text for text in texts if "stopped" in text][-1:]
    assert 1 == len([text for text in texts if "crashed" in text])
    assert not await tab.locator("#other-events").is_visible()
    await tab.get_by_text("more: starts and connections").click()
    await tab.locator("#other-events", has_text="connection 1 is connected to its target").wait_for()


async def pictures(tab: Page, name: str) -> None:
    """Keep pictures; both columns are filled without a gap, and nothing is wider than a narrow window."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    left, right = await bottom_of(tab, "#timeline"), await bottom_of(tab, "#events-section")
    assert right == left or right <= await tab.evaluate("innerHeight") < left
    gaps = await tab.evaluate(GAPS)
    assert {16} == {round(gap) for gap in gaps}
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


async def test_narrow_window(relay: LocalRelay, tab: Page) -> None:
    """The stopped ranks are above the map, a chosen rank is scrolled into view, and the times do not overlap.

    The Tab key reaches one tile, from which the arrow keys reach the one below it and back.
    """
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
        assert 1 == await tab.locator(".tile[tabindex='0']").count()
        await tile(tab, 1).focus()
        before = await tile(tab, 1).bounding_box()
        await tab.keyboard.press("ArrowDown")
        below = await tab.locator(":focus").bounding_box()
        assert before is not None
        assert below is not None
        assert (True, before["x"]) == (below["y"] > before["y"], below["x"])
        await tab.keyboard.press("ArrowUp")
        assert await tile(tab, 1).evaluate("tile => tile === document.activeElement && tile.tabIndex === 0")
        await tab.keyboard.press("Tab")
        assert "tile" not in (await tab.locator(":focus").get_attribute("class") or "")


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
        await tab.locator(".node:not(.away)").nth(1).wait_for()  # a node is drawn again once its tunnel is connected
        await tile(tab, 1).focus()
        await tab.evaluate(f"""for (const port of [{BASE_PORT}, {BASE_PORT + 2}])
            document.querySelector(`.tile[data-port='${{port}}']`).wasDrawnBefore = true;""")
        job.change(0, state="crashed")
        await until_labelled(tab, 0, "crashed")
        assert "rank 0 on node-0 crashed" == await tab.locator("#announcement").inner_text()
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
        await other.get_by_text("this link has already been used or belongs to another relay-client").wait_for()


async def test_two_jobs_on_one_port(relay: LocalRelay, tab: Page) -> None:
    """Only the chosen one of two ranks with the same port is selected; one that cannot be reached offers no attach."""
    async with running_job_of(relay, 2, 2), running_job_of(relay, 2, 2), served_page(relay) as page:
        await opened(tab, page, 4)
        found = []
        for number in (0, 1):
            await tile(tab, 0).nth(number).click()
            await tab.locator("#rank").get_by_role("heading", name="rank 0 of 2").wait_for()
            assert [number == each for each in (0, 1)] == [
                await tile(tab, 0).nth(each).get_attribute("aria-pressed") == "true" for each in (0, 1)
            ]
            reaches = await tab.get_by_role("link", name="Attach in VS Code").count()
            found.append((reaches, await tab.locator("#rank").get_by_text("leads to node-0 pid 4000").count()))
        assert [(0, 1), (1, 0)] == sorted(found)


async def test_filter(relay: LocalRelay, tab: Page) -> None:
    """A state that is chosen in the summary fades the other ranks."""
    async with running_job_of(relay, 4, 2) as job, served_page(relay) as page:
        job.change(3, state="crashed")
        await opened(tab, page, 4)
        await tab.get_by_role("button", name=re.compile("1 ✕ crashed")).click()
        await tab.locator(".tile.faded").nth(2).wait_for()
        assert 3 == await tab.locator(".tile.faded").count()


async def test_the_first_crash(relay: LocalRelay, tab: Page) -> None:
    """It is on top of the stopped ranks and of the events, because it is often the cause of the others."""
    async with running_job_of(relay, 4, 2) as job, served_page(relay) as page:
        await opened(tab, page, 4)
        for rank in (2, 0, 3):
            job.change(rank, state="crashed", detail="KeyError: 'x'" if rank == 2 else "RuntimeError: aborted")
            await until_labelled(tab, rank, "crashed: KeyError: 'x'" if rank == 2 else "crashed: RuntimeError: aborted")
        await tab.locator("#crashes", has_text="ranks 0,3").wait_for()
        assert ["rank 2", "rank 0", "rank 3"] == await tab.locator("#stopped button").all_inner_texts()
        assert ["rank 2 on node-1 crashed: KeyError: 'x'", "ranks 0,3 crashed: RuntimeError: aborted"] == (
            await tab.locator("#crashes span").all_inner_texts()
        )


async def test_crashes_that_name_processes(relay: LocalRelay, tab: Page) -> None:
    """Two crashes that differ in the process that their reason names are two lines, with the whole reason."""
    async with running_job_of(relay, 2, 2) as job, served_page(relay) as page:
        await opened(tab, page, 2)
        for rank in range(2):
            job.change(rank, state="crashed", detail=f"RuntimeError: worker (pid {70 + rank}) died")
        await tab.locator("#crashes li").nth(1).wait_for()
        texts = await tab.locator("#crashes span").all_inner_texts()
        expected = (f"rank {rank} on node-0 crashed: RuntimeError: worker (pid {70 + rank}) died" for rank in range(2))
        assert sorted(texts) == list(expected)


async def test_ranks_that_end_are_one_line(relay: LocalRelay, tab: Page) -> None:
    """They differ in their process ids only."""
    async with running_job_of(relay, 2, 2) as job, served_page(relay) as page:
        await opened(tab, page, 2)
        job.end(0, 3)
        await tab.locator("#recent span", has_text="rank 0 on node-0 (pid 4000) ended with status 3").wait_for()
        job.end(1, 3)
        await tab.locator("#recent span", has_text="ranks 0-1 ended with status 3").wait_for()


async def test_relay_client_exits(relay: LocalRelay, tab: Page) -> None:
    """The page states that relay-client has exited and when its states were true; they are grey and count no time."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(running_job_of(relay, 4, 2))
        client = await stack.enter_async_context(AsyncExitStack())
        page = await client.enter_async_context(served_page(relay))
        await opened(tab, page, 4)
        await tile(tab, 1).click()
        assert "none" == await filter_of(tab, "#map")
        await client.aclose()
        await tab.get_by_role("alert").get_by_text("relay-client has exited").wait_for()
        assert ["grayscale(1)"] * 2 == [await filter_of(tab, part) for part in ("#map", "#rank")]
        assert await tab.get_by_role("button", name="Find missing ranks").is_disabled()
        await tab.evaluate("Date.now = () => 4e12")
        await tile(tab, 2).click()
        await tab.get_by_role("heading", name="rank 2 of 4 running").wait_for()
        assert re.fullmatch(r"states as of \d\d:\d\d:\d\d", await tab.locator("#link").inner_text())
        assert " d)" not in await tab.locator("#rank").inner_text()
        await tab.screenshot(path=PICTURES / "ended.png", full_page=True)


async def filter_of(tab: Page, selector: str) -> str:
    """Return how an element is changed when it is drawn."""
    style = "getComputedStyle(element.closest('main > *')).filter"
    return str(await tab.locator(selector).evaluate(f"element => {style}"))
