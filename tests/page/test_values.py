"""Facts about the values that the page shows, with real processes in a real Chromium."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.jobs.running import access, running_job
from tests.support.machine.ports import consecutive_ports
from tests.support.machine.programs import program
from tests.support.network.relay import HC, LocalRelay
from tests.support.systems.page import opened, running_job_of, served_page

if TYPE_CHECKING:
    from playwright.async_api import Page

LAUNCH = 'for rank in 0 1; do RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 "$@" & done; wait'
TRAIN = """\
import os, time, pathlib
import numpy as np
rank = int(os.environ["RANK"])
class Trainer:
    def __init__(self):
        self.weights = {"fc": np.ones(64)}
        self.weights["fc"][7] += rank
        self.name = "<img src=x onerror=alert(1)>"
        self.table = np.arange(6.0).reshape(2, 3)
    @property
    def loss(self):
        pathlib.Path("executed").touch()
    def __repr__(self):
        pathlib.Path("executed").touch()
        return "trainer"
trainer = Trainer()
while True:
    time.sleep(0.01)
"""


async def read(tab: Page, path: str, button: str, *expected: str) -> None:
    """Request a value, and wait until all these texts are shown."""
    await tab.get_by_label("Path of a value").fill(path)
    await tab.get_by_role("button", name=button, exact=True).click()
    for text in expected:
        await tab.locator("#result", has_text=text).wait_for()


async def test_names_of_ranks_in_several_jobs(relay: LocalRelay, tab: Page) -> None:
    """Only ranks that several jobs have are shown with their ports; a process without a rank is named by its port."""
    found = {(0, 0): (5678, 6678), (1, 2): (5679, 5680), (3,): (5681,), (3, 4): (6681, 6682), (): (6006,)}
    groups = [{"ranks": ranks, "ports": ports, "place": "step", "text": "1"} for ranks, ports in found.items()]
    async with running_job_of(relay, 2, 2), served_page(relay) as page:
        await opened(tab, page, 2)
        await tab.route("**/values?*", lambda route: route.fulfill(json={"data": {"groups": groups}}))
        await read(tab, "x", "Read", "port 6006")
        expected = [
            "rank 0 (ports 5678,6678)",
            "ranks 1-2",
            "rank 3 (port 5681)",
            "ranks 3-4 (ports 6681-6682)",
            "port 6006",
        ]
        shown = await tab.locator("#result h3").all_inner_texts()
        assert [f"{names}, evaluated in step" for names in expected] == shown


@pytest.mark.job
async def test_values(relay: LocalRelay, tab: Page, tmp_path: Path) -> None:
    """A path is read in all ranks or in the selected one, and compared between ranks; no code of the job is executed.

    Values are text, never HTML. Other expressions are refused before they reach the job.
    """
    (launch := tmp_path / "launch.sh").write_text(LAUNCH)
    (script := tmp_path / "train.py").write_text(TRAIN)
    first, _ = consecutive_ports(2)
    job = running_job(
        *(relay, launch, "--port", str(first), "--debug-ranks", "none"),
        arguments=(sys.executable, str(script)),
        launcher=("bash",),
        cwd=tmp_path,
    )
    ports = f"{first}-{first + 1}"
    client = program("relay_client", "--hc", HC, "--ports", ports, "--ui", env=access(relay, tmp_path, "send"))
    async with job, client as running:
        await tab.goto((await running.line("works once")).split()[-1])
        await tab.locator(".tile").nth(1).wait_for()
        assert await tab.get_by_role("option", name="in the selected rank").is_disabled()
        await read(tab, "trainer", "Read", "rank 0", "rank 1", "Trainer(weights={'fc': ndarray[64] float64}, ")
        await read(tab, "trainer.name", "Read", "<img src=x onerror=alert(1)>")
        assert 0 == await tab.locator("img").count()
        await read(tab, "trainer.table", "Read", "[[0")
        lines = (await tab.locator("#result pre").inner_text()).splitlines()
        assert (2, "[3") == (len(lines), lines[1].strip()[:2])
        await read(tab, "foo(", "Read", "'foo(' is not a path")
        await read(tab, "trainer.loss", "Read", "reading 'loss' of Trainer would execute code")
        await read(tab, "trainer.weights['fc']", "Compare", "element 7: ", "reference value")
        await read(tab, "trainer", "Compare", "compare one of its attributes: weights, name, table")
        await tab.get_by_role("button", name="Stacks", exact=True).click()
        await tab.locator("#result", has_text="train.py:").wait_for()
        await read(tab, "trainer.step()", "Read", "'trainer.step()' could execute code in the job")
        await tab.locator(".tile").nth(1).click()
        await tab.get_by_label("Ranks", exact=True).select_option("in rank 1")
        await read(tab, "rank", "Read", "rank 1")
        assert "rank 0" not in await tab.locator("#result").inner_text()
        assert not (tmp_path / "executed").exists()
