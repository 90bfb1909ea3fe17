"""Facts about one rank in all views: the table, status, events, the log, the page, the extension and the MCP server."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from relay_client.agents.event_log import describe_state
from relay_client.control.messages import GetStatus, Subscribe
from relay_client.control.service import Subscriber
from relay_client.control.state import Status
from relay_client.control.status_text import status_text
from relay_client.mcp.reading import Reading
from relay_client.ranks.changes import Event
from relay_client.ranks.record import encode
from relay_client.ui.target_table import plain_table, rows
from tests.support.machine.deadline import DEADLINE
from tests.support.network.relay import LocalRelay
from tests.support.systems.page import opened, running_job_of, served_page

if TYPE_CHECKING:
    from playwright.async_api import Page

EXTENSION = Path(__file__).parents[2] / "vscode"
ESBUILD = EXTENSION / "node_modules" / ".bin" / "esbuild"
TEXT = "crashed: ValueError: no"
PROGRAM = "import { describe, describeShortly } from './src/state'; const [, , target] = process.argv; console.log("
PROGRAM += "JSON.stringify([describe(JSON.parse(target)), describeShortly(JSON.parse(target))]));"


@pytest.mark.skipif(not ESBUILD.exists(), reason="esbuild is not installed: run make vsix")
async def test_crashed_rank_with_a_debugger(
    relay: LocalRelay, tab: Page, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every view shows that it has crashed, and why, although a debugger has stopped it; none calls it stopped."""
    caplog.set_level(logging.INFO)
    events: list[Event] = []
    async with running_job_of(relay, 2, 2) as job, served_page(relay) as page, AsyncExitStack() as stack:
        await opened(tab, page, 2)
        subscriber = Subscriber(events.append)
        page.service.subscribers.add(subscriber)
        await page.service.answer(Subscribe(), subscriber)
        job.change(1, state="crashed", detail="ValueError: no")
        await page.stop(stack, 1)
        await tab.get_by_role("button", name=f"rank 1, {TEXT}", exact=True).wait_for()
        await tab.locator("#events", has_text=f"rank 1 on node-0 {TEXT} (train.py:10)").wait_for()
        assert 1 == await tab.locator("#events li", has_text="rank 1").filter(has_not_text="held").count()
        assert TEXT in await tab.locator("#stopped li").first.inner_text()
        assert ["1 ✕ crashed", "1 ▸ running"] == [
            " ".join(text.split()) for text in await tab.locator("#counts button").all_inner_texts()
        ]
        status = await page.service.answer(GetStatus(), subscriber)
        assert isinstance(status, Status)
        (target,) = (found for node in status.nodes for found in node.targets if found.rank == 1)
        assert ("crashed", TEXT, "train.py:10", True) == (target.kind, target.text, target.place, target.attached_here)
        roster, now = page.tunnels.roster, time.time()
        (table,) = (line for line in plain_table(rows(page.tunnels.nodes(), now)).splitlines() if " 4001 " in line)
        (line,) = (line for line in status_text(status).splitlines() if "rank 1," in line)
        (announced,) = (found for agent in roster for found in agent.targets if found.rank == 1)
        (item,) = (item for item in await Reading(page.tunnels, allow_code=False).ranks() if item["rank"] == 1)
        (event,) = (event for event in events if event.event == "state" and event.state == "crashed")
        assert ["crashed", TEXT] == [item["kind"], item["text"]]
        views = {
            "table": table,
            "status": line,
            "event": event.text,
            "log": next(text for text in caplog.messages if "rank 1 on node-0 crashed" in text),
            "agent": describe_state(announced, now),
            **dict(zip(("tree", "row"), await extension_texts(tmp_path, target), strict=True)),
        }
        assert {} == {name: view for name, view in views.items() if TEXT not in view or "stopped" in view}


async def extension_texts(directory: Path, target: object) -> list[str]:
    """Return the texts that the extension shows for a target."""
    bundle = directory / "program.cjs"
    bundling = await asyncio.create_subprocess_exec(
        *(ESBUILD, "--bundle", "--platform=node", "--loader=ts", "--log-level=error", f"--outfile={bundle}"),
        cwd=EXTENSION,
        stdin=asyncio.subprocess.PIPE,
    )
    await asyncio.wait_for(bundling.communicate(PROGRAM.encode()), DEADLINE)
    running = await asyncio.create_subprocess_exec(
        *("node", str(bundle), json.dumps(encode(target))), stdout=asyncio.subprocess.PIPE
    )
    stdout, _ = await asyncio.wait_for(running.communicate(), DEADLINE)
    texts = json.loads(stdout)
    assert isinstance(texts, list)
    return texts
