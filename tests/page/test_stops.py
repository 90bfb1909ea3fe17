"""Facts about the events of a stop, by a debugger of this relay-client or of another one, with real agents."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from relay_client.compare.console import Command
from relay_client.control.messages import GetStatus, Subscribe
from relay_client.control.service import Subscriber
from relay_client.control.state import Status
from relay_client.ranks.changes import Event
from relay_client.ranks.record import Node, Target
from relay_client.ranks.view import StopReport
from relay_client.ui.target_table import COLUMNS
from relay_client.verbs.console import answer_as_text
from relay_client.verbs.targets import table_rows
from tests.support.machine.deadline import DEADLINE, until
from tests.support.network.relay import LocalRelay
from tests.support.sessions.scripted_ranks import MAIN
from tests.support.systems.page import BASE_PORT, Job, ServedPage, opened, running_job_of, served_page

if TYPE_CHECKING:
    from playwright.async_api import Page

NAME = "rank 1 on node-0"
STATE = COLUMNS.index("state")


def announce_debuggers(job: Job) -> None:
    """Let the agents announce who has attached, as they do for processes with debugpy."""
    for process in job.nodes[0].processes.values():
        process.dap_only = True


async def subscribed(page: ServedPage) -> asyncio.Queue[Event]:
    """Return the events about debuggers and stops from now on."""
    events: asyncio.Queue[Event] = asyncio.Queue()
    subscriber = Subscriber(events.put_nowait)
    page.service.subscribers.add(subscriber)
    await page.service.answer(Subscribe(("held", "free", "stopped", "continued")), subscriber)
    return events


def is_announced(page: ServedPage) -> bool:
    """Return whether the agent has announced where rank 1 is stopped."""
    found = (target for agent in page.tunnels.roster for target in agent.targets if target.port == BASE_PORT + 1)
    return any(target.attachment and target.attachment.stopped_at for target in found)


async def test_a_stop_by_another_client(relay: LocalRelay, tab: Page) -> None:
    """Each stop is one line and one mark on the page, and the rank continues when the other client lets it."""
    async with (
        running_job_of(relay, 2, 2) as job,
        served_page(relay) as page,
        served_page(relay) as other,
        AsyncExitStack() as stack,
    ):
        announce_debuggers(job)
        await opened(tab, page, 2)
        editor = await other.stop(stack, 1)
        await tab.locator("#recent li", has_text=f"{NAME} is stopped at train.py:10").wait_for()
        await tab.locator("#lanes .mark-stopped").wait_for()
        await editor.request("continue", {"threadId": MAIN}, within=DEADLINE)  # it stops again in the next line
        await editor.request("stackTrace", {"threadId": MAIN, "levels": 1}, within=DEADLINE)
        await tab.locator("#recent li", has_text=f"{NAME} is stopped at train.py:11").wait_for()
        await editor.close()
        await tab.locator("#recent li", has_text=f"{NAME} is free").wait_for()
        await tab.get_by_text("more: starts and connections").click()
        assert 1 == await tab.locator("#other-events li", has_text=f"{NAME} continues").count()
        stops = tab.locator("#recent li", has_text=f"{NAME} is stopped")
        assert [2, 2] == [await stops.count(), await tab.locator("#lanes .mark-stopped").count()]


async def test_a_stop_that_is_reported_here_and_announced(relay: LocalRelay) -> None:
    """The announcement adds no event, neither while the stop lasts nor after it."""
    async with running_job_of(relay, 2, 2) as job, served_page(relay) as page, AsyncExitStack() as stack:
        announce_debuggers(job)
        await asyncio.wait_for(page.service.look_for_agents(), DEADLINE)
        events = await subscribed(page)
        editor = await page.stop(stack, 1)
        await until(lambda: is_announced(page))
        await editor.request("goto", {"threadId": MAIN, "targetId": 1}, within=DEADLINE)  # it does not stop again
        await editor.close()
        found: list[Event] = []
        while not found or found[-1].event != "free":
            found.append(await asyncio.wait_for(events.get(), DEADLINE))
        assert ["stopped", "stopped", "continued"] == [
            each.event for each in found if each.event in {"stopped", "continued"}
        ]
        assert [None, 10] == [each.line for each in found if each.event == "stopped"]
        assert events.empty()


async def test_a_stop_that_is_not_announced(relay: LocalRelay) -> None:
    """`@ranks` and the table show the rank as stopped as soon as its debugger has reported the stop here."""
    async with running_job_of(relay, 2, 2), served_page(relay) as page, AsyncExitStack() as stack:
        await asyncio.wait_for(page.service.look_for_agents(), DEADLINE)
        await page.stop(stack, 1)
        shown = await answer_as_text(page.tunnels, Command("ranks"))
        assert ["running", "stopped at train.py:10"] == [row.cells[STATE] for row in table_rows(page.tunnels)]
        assert 1 == shown.count("stopped at train.py:10")
        assert not is_announced(page)


async def test_a_debugger_that_leaves_before_the_announcement(
    relay: LocalRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that continues does so once, also if its node announces the stop until the debugger has left."""
    async with served_page(relay) as page:
        running = Target(5681, kind="running", text="running", state="running", holder="bob@vm", attached_here=True)
        stale = replace(running, kind="stopped", text="stopped at train.py:41", place="train.py:41", since=9.0)
        steps = [
            running,
            replace(stale, stop=StopReport("pause", 9.0, "/job/train.py", 41)),
            stale,
            replace(stale, attached_here=False),
            replace(running, holder=None, attached_here=False),
        ]
        status = await page.service.answer(GetStatus(), Subscriber(lambda _event: None))
        assert isinstance(status, Status)
        states = [replace(status, nodes=(Node("agent-1", "host-1", "connected", targets=(each,)),)) for each in steps]
        monkeypatch.setattr(page.service, "_snapshot", lambda: states[0])
        events = await subscribed(page)
        while len(states) > 1:
            del states[0]
            page.tunnels.on_change()
        assert ["stopped", "continued", "free"] == [events.get_nowait().event for _ in range(events.qsize())]


TEXT = "rank 0 on a crashed: ValueError: no"
MODEL = {"reason": "exception", "file": "/job/model.py", "line": 99}
CRASH = {"event": "stopped", "detail": "ValueError: no", "text": TEXT} | MODEL
STOP = {"event": "stopped", "reason": "breakpoint", "file": "/job/train.py", "line": 10, "text": "rank 0 on a is at 10"}


@pytest.mark.parametrize(
    ("stop", "expected"), [(STOP, ["rank 0 on a is at 10", TEXT]), (STOP | MODEL, [f"{TEXT} (model.py:99)"])]
)
async def test_a_crash_after_a_stop(relay: LocalRelay, tab: Page, stop: dict[str, object], expected: list[str]) -> None:
    """A crash elsewhere is a fact of its own, with its own place; one at the stop belongs to it."""
    events = [each | {"agent": "a", "port": 5678, "time": number} for number, each in enumerate([stop, CRASH])]
    async with running_job_of(relay, 1, 1), served_page(relay) as page:
        await opened(tab, page, 1)
        found = await tab.evaluate("async events => (await import('./events.js')).facts(events)", events)
    assert expected == [each["text"] for each in found]


SHOWN = """async events => {
    const {view} = await import('./view.js');
    view.events = events.map((event, number) => ({...event, number}));
    (await import('./events.js')).showEvents();
    return [...document.querySelectorAll('#crashes span')].map((each) => each.textContent);
}"""


@pytest.mark.parametrize(
    ("other", "seconds", "expected"),
    [
        ({"port": 5680}, 3, ["ranks 1-2 crashed: KeyError: 'x'"]),
        ({"port": 5680}, 60, ["rank 1 on a crashed: KeyError: 'x'", "rank 2 on a crashed: KeyError: 'x'"]),
        ({"port": 6680}, 3, ["rank 1 on a crashed: KeyError: 'x'", "rank 2 on a crashed: KeyError: 'x'"]),
    ],
)
async def test_crashes_of_one_wave(
    relay: LocalRelay, tab: Page, other: dict[str, object], seconds: float, expected: list[str]
) -> None:
    """Only the equal crashes of a job within a few seconds are one line; those of its next start are not."""
    events = [
        {"event": "state", "state": "crashed", "host": "a", "text": f"rank {rank} on a crashed: KeyError: 'x'"}
        | {"agent": f"a/{rank}", "rank": rank, "port": 5678 + rank, "time": rank * seconds}
        for rank in (1, 2)
    ]
    async with running_job_of(relay, 1, 1), served_page(relay) as page:
        await opened(tab, page, 1)
        assert expected == await tab.evaluate(SHOWN, [events[0], events[1] | other])


LANE = """async ([agents, events]) => {
    const node = {host: 'vm', name: 'vm', link: 'connected', link_since: 1050, targets: []};
    const nodes = agents.map((agent) => ({...node, agent}));
    (await import('./timeline.js')).showLanes(nodes, events, 1000, 1100);
    const left = (each) => Number(each.getAttribute('x') ?? each.getAttribute('cx'));
    const found = (name) => [...document.querySelectorAll(`#lanes ${name}`)].map(left);
    return ['.connected', '.away', '.mark-crashed'].map(found);
}"""


async def test_a_node_with_two_jobs_in_the_timeline(relay: LocalRelay, tab: Page) -> None:
    """The lane of a node shows the periods and crashes of an agent that has ended, too, and once."""
    about = {"agent": "vm/1", "host": "vm", "text": ""}
    crash = {"event": "state", "state": "crashed", "port": 5678}
    events = [about | {"event": "connected", "time": 1010}, about | crash | {"time": 1020}]
    events += [about | {"event": "lost", "time": 1030}, about | {"event": "ended", "time": 1040}]
    async with running_job_of(relay, 1, 1), served_page(relay) as page:
        await opened(tab, page, 1)
        connected, away, crashes = await tab.evaluate(LANE, [["vm/2", "vm/3"], events])
    old, *new = connected
    assert old < crashes[0] < away[0] < new[0]
    assert [3, 1, 1] == [len(connected), len(away), len(crashes)]
