"""The page of a relay-client in this process, and agents with pretended ranks that stop like real ones."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from relay_client.agents.tunnels import Tunnels
from relay_client.control.log_history import LogHistory
from relay_client.control.messages import Attach, Attached
from relay_client.control.server import client_id
from relay_client.control.service import ControlService, Subscriber
from relay_client.dap import DapClient
from relay_client.page.server import PageServer
from relay_client.ports.forwarder import Forwarder
from relay_core.agent_api.announcement import Ending
from relay_core.dap.framing import MessageDecoder, encode
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.streams import local_server
from tests.support.network.fleet import Node, Process, agent, tunnels
from tests.support.network.relay import LocalRelay
from tests.support.sessions.scripted_ranks import MAIN, ScriptedRank

if TYPE_CHECKING:
    from playwright.async_api import Page

__all__ = ["BASE_PORT", "Job", "ServedPage", "bottom_of", "opened", "running_job_of", "served_page", "top_of"]

BASE_PORT = 25678


@dataclass
class ServedPage:
    """A running page."""

    service: ControlService
    tunnels: Tunnels
    links: list[str] = field(default_factory=list)
    """The links that the user was shown."""

    @property
    def address(self) -> str:
        """The page's address without a token."""
        return self.links[0].partition("#")[0]

    async def stop(self, stack: contextlib.AsyncExitStack, rank: int) -> DapClient:
        """Attach an editor to a rank, and stop it."""
        subscriber = Subscriber(lambda _event: None)
        attached = await self.service.answer(Attach(rank=rank), subscriber)
        assert isinstance(attached, Attached)
        editor = await stack.enter_async_context(
            await DapClient.connect("127.0.0.1", attached.local_port, within=DEADLINE)
        )
        await editor.attach({}, within=DEADLINE)
        await editor.request("pause", {"threadId": MAIN}, within=DEADLINE)
        await editor.wait_for_event("stopped", within=DEADLINE)
        await editor.request("stackTrace", {"threadId": MAIN, "levels": 1}, within=DEADLINE)
        return editor


@contextlib.asynccontextmanager
async def served_page(relay: LocalRelay) -> AsyncIterator[ServedPage]:
    """Run a relay-client with `--ui`, without its command line."""
    async with tunnels(relay) as client_tunnels, Forwarder(client_tunnels, []) as forwarder:
        client_tunnels.keep_searching()
        with LogHistory() as logs:
            service = ControlService(client_id("forward", client_tunnels.endpoint), client_tunnels, forwarder, logs)
            page = ServedPage(service, client_tunnels)
            async with PageServer(service, page.links.append) as server:
                server.show_link()
                yield page


async def opened(tab: Page, page: ServedPage, ranks: int) -> None:
    """Open the newest link, and wait until all ranks are shown."""
    await tab.goto(page.links[-1])
    await tab.get_by_text(re.compile(rf"\d nodes?, {ranks} ranks?$")).wait_for()


async def top_of(tab: Page, selector: str) -> float:
    """Return the distance of an element from the top of the window."""
    return float(await tab.evaluate(f"document.querySelector('{selector}').getBoundingClientRect().top"))


async def bottom_of(tab: Page, selector: str) -> float:
    """Return the distance of an element's end from the top of the window."""
    return float(await tab.evaluate(f"document.querySelector('{selector}').getBoundingClientRect().bottom"))


@dataclass
class Job:
    """The nodes of a job."""

    nodes: Sequence[Node]
    per_node: int

    def change(self, rank: int, **fields: object) -> None:
        """Announce another state of a rank."""
        self.nodes[rank // self.per_node].change(BASE_PORT + rank, **fields)

    def end(self, rank: int, status: int) -> None:
        """Let a rank leave with an exit status."""
        node = self.nodes[rank // self.per_node]
        node.fields["endings"] = (Ending(BASE_PORT + rank, 4000 + rank, status, rank=rank),)
        node.remove(BASE_PORT + rank)


@contextlib.asynccontextmanager
async def running_job_of(relay: LocalRelay, ranks: int, per_node: int) -> AsyncIterator[Job]:
    """Run the agents of a job whose ranks are running; each has a debugger that answers as debugpy does."""
    async with contextlib.AsyncExitStack() as stack:
        local, _ = await stack.enter_async_context(local_server(_debug))
        nodes = []
        for number in range(ranks // per_node):
            processes = [
                Process(
                    BASE_PORT + rank,
                    local,
                    rank=rank,
                    world=ranks,
                    pid=4000 + rank,
                    script="train.py",
                    cwd="/mnt/job",
                    state="running",
                    since=time.time(),
                )
                for rank in range(number * per_node, (number + 1) * per_node)
            ]
            node = Node(*processes, host=f"node-{number}", node_rank=number, run="brave_sun_7")
            await stack.enter_async_context(agent(relay, node))
            nodes.append(node)
        yield Job(nodes, per_node)


async def _debug(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one connection of a debugger."""
    rank, decoder = ScriptedRank(0), MessageDecoder()
    while data := await reader.read(65536):
        rank.received += decoder.receive_data(data)
        while rank.received:
            rank.answer()
        while rank.sent:
            writer.write(encode(rank.sent.popleft()))
        await writer.drain()
