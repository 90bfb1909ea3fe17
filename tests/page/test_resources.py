"""Facts about the resources on the page of `relay-client --ui`, in a real Chromium."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from relay_client.control.messages import GetStatus
from relay_client.control.service import Subscriber
from relay_client.ranks.record import encode
from relay_core.agent_api.usage import GpuShare, GpuUsage, NodeUsage, ProcessUsage
from tests.support.jobs.running import access, running_job
from tests.support.machine.ports import free_port
from tests.support.machine.programs import program, run
from tests.support.network.relay import HC, LocalRelay
from tests.support.systems.page import BASE_PORT, Job, ServedPage, opened, running_job_of, served_page

if TYPE_CHECKING:
    from playwright.async_api import Page


PICTURES = Path(__file__).resolve().parents[2] / "build" / "page"
MIB, GIB = 2**20, 2**30
HEIGHT, MARGIN = 44, 2
"""Of a plot, as in resources.js: the largest value is drawn at `MARGIN`, zero at `HEIGHT - MARGIN`."""
NO_GPU = "no GPU was found"
PLOTS = """selector => [...document.querySelectorAll(selector + ' figure')].map(figure => [
    ...[...figure.querySelectorAll('figcaption span')].map(span => span.innerText),
    figure.querySelector('.line').getAttribute('points'),
])"""
TRAIN = "import time\nwhile True:\n    sum(range(100_000))\n    time.sleep(0.01)\n"


@dataclass(frozen=True)
class Plot:
    """A plot as it is drawn."""

    text: str
    """The latest value, with its unit."""
    heights: tuple[float, ...]
    """Each value as a share of the largest one that can be drawn."""

    @property
    def number(self) -> float:
        """The latest value, as a number without its unit."""
        return float(self.text.split()[0])


async def plots(tab: Page, selector: str) -> dict[str, Plot]:
    """Return the plots in an element by their labels."""
    found: list[list[str]] = await tab.evaluate(PLOTS, selector)
    drawn = {}
    for label, text, points in found:
        heights = [(HEIGHT - MARGIN - float(point.split(",")[1])) / (HEIGHT - 2 * MARGIN) for point in points.split()]
        drawn[label] = Plot(text, tuple(heights))
    return drawn


def heights(*shares: float) -> object:
    """Return what equals these heights, which are drawn with one decimal."""
    return pytest.approx(shares, abs=0.051 / (HEIGHT - 2 * MARGIN))


def use(job: Job, number: int, usage: NodeUsage, *shares: GpuShare) -> None:
    """Announce a sample of a node, and an event, so that the page is updated at once."""
    first = BASE_PORT + number * job.per_node
    job.nodes[number].fields["usage"] = replace(
        usage, processes=(ProcessUsage(first, usage.cpu / 2, usage.memory // 4, None, shares),)
    )
    state = job.nodes[number].processes[first].fields["state"]
    job.nodes[number].change(first, state="waiting" if state == "running" else "running")


async def status(page: ServedPage) -> dict[str, Any]:
    """Return the state as `relay-client status --json` prints it."""
    found: dict[str, Any] = encode(await page.service.answer(GetStatus(), Subscriber(lambda _event: None)))
    return found


async def test_without_a_monitor(relay: LocalRelay, tab: Page) -> None:
    """The page has no section about resources."""
    async with running_job_of(relay, 4, 2), served_page(relay) as page:
        await opened(tab, page, 4)
        assert not await tab.locator("#resources").is_visible()
        assert NO_GPU not in await tab.locator("body").inner_text()


async def test_the_plots_of_two_nodes(relay: LocalRelay, tab: Page) -> None:
    """Each node shows its own numbers, as in `status --json`; only the one without GPUs states that none was found.

    A single sample is a horizontal line. After a reload, the plots are the same.
    """
    gpu = GpuUsage("H100", 0.25, 20 * GIB, 80 * GIB)
    node = tab.locator("#usage .node")
    async with running_job_of(relay, 4, 2) as job, served_page(relay) as page:
        await opened(tab, page, 4)
        use(job, 1, NodeUsage(100.0, 1.0, 16, 8 * GIB, 64 * GIB, (gpu,)))
        for sample, cpu in enumerate((2.0, 0.0, 6.0)):
            use(job, 0, NodeUsage(200.0 + sample, cpu, 8, (sample + 1) * GIB, 16 * GIB))
            await node.first.get_by_text(f"{100 * cpu / 8:.0f} % of 8").wait_for()
        await node.nth(1).wait_for()
        assert [1, 0] == [await node.nth(at).get_by_text(NO_GPU).count() for at in (0, 1)]
        await tab.locator(f".tile[data-port='{BASE_PORT}']").click()
        await tab.locator("#rank figure").first.wait_for()
        first, second = await plots(tab, "#usage .node:first-child"), await plots(tab, "#usage .node:last-child")
        assert ["processors", "memory"] == list(first)
        assert ["processors", "memory", "GPU 0 H100", "GPU 0 memory"] == list(second)
        usage, other = (found["usage"] for found in (await status(page))["nodes"])
        assert heights(0.25, 0.0, usage["cpu"] / usage["cores"]) == first["processors"].heights
        assert heights(1 / 16, 2 / 16, usage["memory"] / usage["total"]) == first["memory"].heights
        assert ("75 % of 8", "3.0 of 16 GiB") == (first["processors"].text, first["memory"].text)
        assert ("6 % of 16", "8.0 of 64 GiB") == (second["processors"].text, second["memory"].text)
        (found,) = other["gpus"]
        assert heights(found["busy"], found["busy"]) == second["GPU 0 H100"].heights
        assert heights(*[found["memory"] / found["total"]] * 2) == second["GPU 0 memory"].heights
        assert ("25 %", "20.0 of 80 GiB") == (second["GPU 0 H100"].text, second["GPU 0 memory"].text)
        rank = await plots(tab, "#rank")
        assert heights(1 / 3, 0.0, 1.0) == rank["processors"].heights
        assert ("3.00", "768 MiB") == (rank["processors"].text, rank["memory"].text)
        await tab.screenshot(path=picture("resources"), full_page=True)
        await tab.reload()
        await node.nth(1).wait_for()
        await tab.locator(f".tile[data-port='{BASE_PORT}']").click()
        await tab.locator("#rank figure").first.wait_for()
        assert first == await plots(tab, "#usage .node:first-child")
        assert rank == await plots(tab, "#rank")


def picture(name: str) -> Path:
    PICTURES.mkdir(parents=True, exist_ok=True)
    return PICTURES / f"{name}.png"


async def test_many_gpus(relay: LocalRelay, tab: Page) -> None:
    """All GPUs of a node share two plots, with a line for each GPU and the range of the latest values.

    The plots of a rank have the memory that it uses on its GPUs, or that torch's allocator holds for it.
    """
    gpus = tuple(GpuUsage("H100", number / 10, number * 10 * GIB, 80 * GIB) for number in range(8))
    async with running_job_of(relay, 2, 2) as job, served_page(relay) as page:
        await opened(tab, page, 2)
        shares = (GpuShare(3, 24 * GIB), GpuShare(4, 40 * GIB))
        use(job, 0, NodeUsage(100.0, 1.0, 16, 8 * GIB, 64 * GIB, gpus), *shares)
        await tab.locator("#usage figure").nth(3).wait_for()
        load, memory = await tab.locator("#usage figcaption", has_text="GPUs 0-7").all_inner_texts()
        assert ["GPUs 0-7 H100", "0 to 70 %"] == load.split("\n")
        assert ["GPUs 0-7 memory", "0.00 to 70.0 of 80 GiB"] == memory.split("\n")
        assert 8 == await tab.locator("#usage figure").nth(2).locator(".line").count()
        await tab.locator(f".tile[data-port='{BASE_PORT}']").click()
        await tab.locator("#rank figure").nth(2).wait_for()
        of_rank = await plots(tab, "#rank")
        assert ["processors", "memory", "GPUs 3, 4 memory"] == list(of_rank)
        assert "24.0 to 40.0 of 80 GiB" == of_rank["GPUs 3, 4 memory"].text
        assert heights(0.3, 0.3) == of_rank["GPUs 3, 4 memory"].heights
        await tab.screenshot(path=picture("many-gpus"), full_page=True)
        use(job, 0, NodeUsage(101.0, 1.0, 16, 8 * GIB, 64 * GIB, gpus), GpuShare(3, 20 * GIB, is_reserved=True))
        await tab.locator("#rank figure", has_text="GPU 3 memory of torch").wait_for()


async def test_a_sample_changes_no_card(relay: LocalRelay, tab: Page) -> None:
    """A new sample of a node updates its plots, but the tiles of its ranks are not drawn again."""
    usage = NodeUsage(100.0, 1.0, 8, GIB, 16 * GIB, processes=(ProcessUsage(BASE_PORT, 0.5, GIB),))
    async with running_job_of(relay, 4, 2) as job, served_page(relay) as page:
        await opened(tab, page, 4)
        await tab.evaluate(f"""document.querySelector(".tile[data-port='{BASE_PORT}']").wasDrawnBefore = true""")
        job.nodes[0].fields["usage"] = usage
        job.nodes[0].publish()
        job.change(3, state="crashed")
        await tab.locator("#usage .node").wait_for()
        assert await tab.locator(f".tile[data-port='{BASE_PORT}']").evaluate("tile => tile.wasDrawnBefore")


@pytest.mark.job
async def test_a_real_job(relay: LocalRelay, tab: Page, tmp_path: Path) -> None:
    """The numbers of the plots are those of a sample that `relay-client status --json` has shown."""
    (script := tmp_path / "train.py").write_text(TRAIN)
    port, env = str(free_port()), access(relay, tmp_path, "send")
    options = ("--port", port, "--debug-ranks", "none", "--debug-monitor", "2s")
    async with (
        running_job(relay, script, *options, cwd=tmp_path),
        program("relay_client", "--hc", HC, "--ports", port, "--ui", env=env) as client,
    ):
        await tab.goto((await client.line("works once")).split()[-1])
        await tab.locator(".tile").click()
        await tab.locator("#rank figure").first.wait_for()
        await tab.locator("#usage figure").first.wait_for()
        seen: list[dict[str, Any]] = []
        while not any([are_shown(each, await plots(tab, "#usage"), await plots(tab, "#rank")) for each in seen]):
            finished = await run("relay_client", "status", "--json", "--client", str(client.process.pid), env=env)
            assert 0 == finished.status, finished.stderr
            (node,) = json.loads(finished.stdout)[0]["nodes"]
            seen.append(node)
        assert (0 if node["usage"]["gpus"] else 1) == await tab.locator("#usage").get_by_text(NO_GPU).count()
        await tab.screenshot(path=picture("resources-of-a-job"), full_page=True)


def are_shown(node: dict[str, Any], of_node: dict[str, Plot], of_rank: dict[str, Plot]) -> bool:
    """Return whether the latest values of all plots, as lines and as texts, are those of a sample."""
    (process,) = (usage := node["usage"])["processes"]
    processors, memory = usage["cpu"] / usage["cores"], usage["memory"] / usage["total"]
    lines = of_node["processors"].heights[-1], of_node["memory"].heights[-1]
    texts = [of_node["processors"].number, of_node["memory"].number]
    texts += [of_rank["processors"].number, of_rank["memory"].number]
    numbers = [100 * processors, usage["memory"] / GIB, process["cpu"], process["memory"] / MIB]
    rounding = [0.51, 0.051, 0.0051, 0.51]
    are_equal = [abs(text - number) < most for text, number, most in zip(texts, numbers, rounding, strict=True)]
    return lines == heights(min(1.0, processors), memory) and all(are_equal)
