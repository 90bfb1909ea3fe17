"""What the page of `relay-client --ui` costs the laptop: CPU of relay-client, and of Chromium with all its processes.

The job has 256 pretended ranks, sixteen on each of the agents, which are real. The page is open in a window of its own.
First nothing changes, then two ranks announce another state in each second.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING

import psutil

from tests.bench.programs import lines_of
from tests.bench.report import Limit, Row
from tests.bench.stage import Stage

if TYPE_CHECKING:
    from playwright.async_api import Page

__all__ = ["page"]

FIGURE = "page"
RANKS = 256
PER_AGENT = 16
RATES = {"nothing changes": 0, "two changes a second": 2}
MOST = 5.0
"""Percent of one core."""
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
SETTLING = 5.0
"""Seconds: for the work that opening the page, or the first change, leaves behind."""


async def page(stage: Stage, *, quick: bool) -> list[Row]:
    """The share of a core, for each rate of changes."""
    chromium = shutil.which("chromium")
    try:
        from playwright.async_api import async_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        stage.skipped[FIGURE] = "chromium or playwright is not installed (make extras)"
        return []
    secrets = (stage.relay.connection_file("agent"), stage.relay.ca_file)
    async with stage.programs.talking("tests.bench.changing_ranks", RANKS, PER_AGENT, *secrets) as job:
        await job.receive()
        client = await stage.begin_client("--ui")
        lines = await lines_of(client, lambda text: "http://" in text)
        async with async_playwright() as running:
            others = set(psutil.Process().children(recursive=True))
            browser = await running.chromium.launch(executable_path=chromium, args=FLAGS)
            tab = await browser.new_page(viewport={"width": 1400, "height": 900})
            await _open(tab, re.findall(r"http://\S+", lines)[0])
            started = [each for each in psutil.Process().children(recursive=True) if each not in others]
            rows = []
            for what, rate in RATES.items():
                await job.ask(rate)
                await _shown(tab, "waiting for a debugger" if rate else "running")
                used = {"relay-client": lambda: _cpu(psutil.Process(client.pid)), "Chromium": lambda: _total(started)}
                shares = await _shares(used, 10 if quick else 60)
                limits = dict.fromkeys(shares, Limit(MOST))
                rows.append(Row(f"page with {RANKS} ranks", f"CPU, {what}", "%", {**shares}, limits=limits))
            await browser.close()
        await stage.programs.end(client)
    return rows


async def _open(tab: Page, link: str) -> None:
    """Open the page, and show all ranks, although those that are running are folded at first."""
    await tab.goto(link)
    await tab.locator("#nodes summary", has_text=f"{RANKS} ranks running").click()
    await tab.locator(".tile").nth(RANKS - 1).wait_for()


async def _shown(tab: Page, state: str) -> None:
    """Wait until the page shows the first rank in a state, and then for what this leaves behind."""
    await tab.get_by_role("button", name=f"rank 0, {state}", exact=True).wait_for()
    await asyncio.sleep(SETTLING)


async def _shares(used: dict[str, Callable[[], float]], seconds: int) -> dict[str, float]:
    """Return the percentage of one core that each of the programs uses for some seconds."""
    before = {name: seconds_of() for name, seconds_of in used.items()}
    await asyncio.sleep(seconds)
    return {name: 100 * (seconds_of() - before[name]) / seconds for name, seconds_of in used.items()}


def _total(processes: list[psutil.Process]) -> float:
    return sum(map(_cpu, processes))


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
