"""Real agents with simulated processes: each target is a local server that sends its name."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

from relay_agent.agent.agent import Agent
from relay_client.agents.tunnels import Tunnels
from relay_core.agent_api.announcement import AgentInfo, TargetInfo
from relay_core.agent_api.collectives import ProcessCollectives
from relay_core.agent_api.metadata import ClientStatus
from relay_core.agent_api.questions import NodeReplies, Question, ReadCollectives, ReadStacks, Reply
from relay_core.agent_api.requests import Listen, Ready, Wake, parse_request, stream_name
from relay_core.errors import RelayDebugError
from relay_core.net.session.driver import SessionDriver
from relay_core.net.session.stream import SessionStream
from relay_core.records import encode, parse_or_none
from relay_core.tunnel.events import StreamOpened
from relay_core.tunnel.limits import Settings
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.streams import local_server
from tests.support.network.relay import LocalRelay
from tests.support.network.tunnel import running_agent

KEY = b"k" * 32
SETTINGS = Settings(ping_after=1.0, dead_after=5.0, grace=60.0)
"""Timers for many agents in one event loop, which on a busy machine takes seconds to answer."""
DAP_START = b"Content-Length: 2\r\n\r\n{}"
"""What a debugger sends first; an agent connects nobody else to a debuggee."""


class Process:
    """A rank without a process: a target as the agent's provider knows it."""

    is_own = True

    def __init__(self, port: int, local: int, *, dap_only: bool = False, **fields: Any) -> None:
        self.logical_port = port
        self.dap_only = dap_only
        self.fields: dict[str, Any] = fields
        self.woken = 0
        self.ended = asyncio.Event()
        """Set by a test when the process has exited, while what it served continues."""
        self._local = local

    async def locate(self) -> tuple[str, int]:
        self.woken += 1
        return "127.0.0.1", self._local

    def detached(self, resumed_since: float | None) -> None:
        pass

    async def until_ended(self) -> str:
        await self.ended.wait()
        return "the process has exited"

    def describe(self) -> TargetInfo:
        return parse_or_none(TargetInfo, {"port": self.logical_port, **self.fields}) or TargetInfo(self.logical_port)


class Node:
    """The provider of an agent whose processes come and go as a test wants it."""

    def __init__(self, *processes: Process, **fields: Any) -> None:
        self.processes = {process.logical_port: process for process in processes}
        self.forwards: dict[int, Process] = {}
        self.fields: dict[str, Any] = fields
        self.statuses: list[ClientStatus] = []
        """What clients reported about their view."""
        self.collectives: list[ProcessCollectives] = []
        """What the processes report about their process groups, and about their threads; in the order of ports."""
        self.held_jobs: frozenset[int] = frozenset()
        """The jobs of which a rank is held, on any node."""
        self.is_silent = False
        """Whether requests are never answered."""
        self.publish: Callable[[], None] = lambda: None

    def find(self, port: int) -> Process | None:
        return self.processes.get(port) or self.forwards.get(port)

    def describe(self, agent: AgentInfo) -> AgentInfo:
        return replace(agent, forwards=tuple(sorted(self.forwards)), **self.fields)

    def targets(self) -> list[Process]:
        return [process for _, process in sorted(self.processes.items())]

    async def answer(self, request: Wake | Question) -> Ready | NodeReplies:
        if self.is_silent:
            await asyncio.Event().wait()
        if isinstance(request, ReadCollectives):
            return self._replies(self.collectives)
        if isinstance(request, ReadStacks) and self.collectives:
            return self._replies(each.stacks for each in self.collectives)
        if not isinstance(request, Wake) or request.port not in self.processes:
            raise RelayDebugError(f"cannot {stream_name(request)}", hint="ask for something else")
        await self.processes[request.port].locate()
        return Ready()

    def _replies(self, answers: Iterable[object]) -> NodeReplies:
        found = zip(self.targets(), answers, strict=False)
        return NodeReplies(tuple(Reply(p.logical_port, p.fields.get("rank"), encode(each)) for p, each in found))

    def status_received(self, status: ClientStatus) -> None:
        self.statuses.append(status)

    def set_held_jobs(self, jobs: Collection[int]) -> None:
        self.held_jobs = frozenset(jobs)

    def put(self, *processes: Process) -> None:
        """Let processes join, and notify the clients."""
        self.processes |= {process.logical_port: process for process in processes}
        self.publish()

    def remove(self, port: int) -> None:
        """Let one leave, and notify the clients."""
        del self.processes[port]
        self.publish()

    def change(self, port: int, **fields: Any) -> None:
        """Let one change its state, and notify the clients."""
        self.processes[port].fields |= {"since": time.time(), **fields}
        self.publish()


class DiallingAgent(Agent):
    """An agent that answers `listen/PORT` by opening one stream to the client, and keeps what comes back."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.dialled: asyncio.Queue[tuple[SessionStream, SessionStream]] = asyncio.Queue()
        """The request, and the stream opened for it."""

    def _open(self, driver: SessionDriver, stream: SessionStream, event: StreamOpened) -> None:
        if isinstance(event.target, str) and isinstance(request := parse_request(event.target), Listen):
            driver.accept(stream)
            self.dialled.put_nowait((stream, driver.open(request.port)))
        else:
            super()._open(driver, stream, event)


@contextlib.asynccontextmanager
async def process(port: int, name: str = "", **fields: Any) -> AsyncIterator[Process]:
    """Run a local server that answers whatever comes with `name`, for as long as it comes."""

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000):
            writer.write(name.encode() + b"\n")

    async with local_server(say) as (local, _):
        yield Process(port, local, **fields)


@contextlib.asynccontextmanager
async def agent(relay: LocalRelay, node: Node, kind: type[Agent] = Agent) -> AsyncIterator[Agent]:
    """Run an agent; the block begins when it listens, and the agent is stopped at its end."""
    async with running_agent(relay, node, tunnel_key=KEY, settings=SETTINGS, kind=kind) as running:
        node.publish = running.publish
        yield running


@contextlib.asynccontextmanager
async def node_of(
    relay: LocalRelay, *ports: int, name: str = "", fields: dict[str, Any] | None = None, **target_fields: Any
) -> AsyncIterator[Node]:
    """Run an agent with one simulated process for each port; each sends `name:port`."""
    async with contextlib.AsyncExitStack() as stack:
        processes = [
            await stack.enter_async_context(process(port, f"{name}:{port}", **target_fields)) for port in ports
        ]
        node = Node(*processes, **(fields or {}))
        await stack.enter_async_context(agent(relay, node))
        yield node


def tunnels(relay: LocalRelay, **options: Any) -> Tunnels:
    """Return a client of these agents."""
    return Tunnels(relay.endpoint, relay.sender, relay.tls, tunnel_key=KEY, settings=SETTINGS, **options)


async def who_serves(port: int, first: bytes = DAP_START) -> str:
    """Connect to a local port, say something, and return what the process behind it calls itself; "" at EOF."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(first)
        return (await asyncio.wait_for(reader.readline(), DEADLINE)).decode().strip()
    except ConnectionError:
        return ""
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def until_announced(client: Tunnels, *, is_attached: bool) -> None:
    """Wait until the agent announces that a debugger is attached, or that none is."""

    def find() -> bool | None:
        found = [claim.target.attachment is not None for claim in client.reachable_targets()]
        return found == [is_attached] or None

    await asyncio.wait_for(client.search.wait_for(find, lambda _why: None), DEADLINE)
