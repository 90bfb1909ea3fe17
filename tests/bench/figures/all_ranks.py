"""A step of all ranks in one debug session.

Four real ranks on one node: from `next` until all have stopped, beside the slowest of the four when each is stepped
alone on its own port. Sixty-four pretended ranks on sixteen agents, whose debuggers answer at once: from `next` until
the line that sums up, beside sixty-four editors that send the same request at once, until the last has its stack.
Relay, agents, debuggers and client share one process there. What the session adds to the connections is its own work:
the reading, translating and writing of all messages of one step, measured without any connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

from relay_client.agents.roster import Destination
from relay_client.agents.tunnels import Tunnels
from relay_client.dap.client import DapClient
from relay_client.job_session.wire import ToEditor, ToRank
from relay_client.ports.forwarder import Forwarder
from relay_client.ports.local_port import all_ranks_port, debugger_ports
from relay_core.dap.framing import MessageDecoder, encode
from tests.bench.report import Limit, Row, median_ms
from tests.bench.stage import Stage as BenchStage
from tests.support.fleet import Node, Process, agent, tunnels
from tests.support.many_ranks import AllRanksEditor, Ranks, line_of
from tests.support.ports import free_port
from tests.support.relay import LocalRelay, local_relay
from tests.support.scripted_ranks import FILE, MAIN, ScriptedRank, Stage, stopped
from tests.support.streams import local_server
from tests.support.tunnel import QUICK

__all__ = ["all_ranks"]

FIGURE = "step of all ranks"
WITHIN = 120.0
SLOWEST = "slowest rank alone"
SESSION = "all ranks"
ADDED = "of that, the session"
RANKS, AGENTS = 64, 16
TRAIN = """\
number = 0
while number < 1_000_000_000:
    number += 1
    number -= 1
    number += 1
"""
COUNT = line_of(TRAIN, "number += 1")


async def all_ranks(stage: BenchStage, *, quick: bool) -> list[Row]:
    """Real ranks, then many pretended ones."""
    count = 10 if quick else 40
    with TemporaryDirectory() as directory:
        async with local_relay(Path(directory) / "tls") as relay:
            rows = [await _real(relay, Path(directory), count)]
        async with local_relay(Path(directory) / "tls") as relay:
            return [*rows, await _pretended(relay, count)]


# Real ranks:


async def _real(relay: LocalRelay, directory: Path, count: int) -> Row:
    script = directory / "train.py"
    script.write_text(TRAIN)
    port = free_port()
    async with Ranks(relay, script, 4) as ranks, _client(relay) as (client, forwarder):
        first = ranks.first_port
        for local in debugger_ports(range(first, first + 4)):
            await forwarder.open(local)
        await forwarder.open(all_ranks_port(port))
        await client.search.wait_for(lambda: len(client.reachable_targets()) == 4 or None, lambda _why: None)
        alone = [median_ms(await _steps_alone(first + rank, script, count)) for rank in range(4)]
        together = median_ms(await _steps_together(port, script, count, forwarder))
    values = {SLOWEST: max(alone), SESSION: together}
    limits = {SESSION: Limit(1.3, "ratio")}
    return Row(FIGURE, "4 ranks on a node, next until stopped", "ms", values, limits=limits, detail={"alone": alone})


@contextlib.asynccontextmanager
async def _client(relay: LocalRelay) -> AsyncIterator[tuple[Tunnels, Forwarder]]:
    async with (
        Tunnels(relay.endpoint, relay.sender, relay.tls, settings=QUICK, tunnel_key=None) as client,
        Forwarder(client, []) as forwarder,
    ):
        yield client, forwarder


async def _steps_alone(port: int, script: Path, count: int) -> list[float]:
    async with await DapClient.connect("127.0.0.1", port) as dap:
        await dap.attach({str(script): [{"line": COUNT}]}, within=WITHIN)
        thread = (await dap.wait_for_event("stopped", within=WITHIN))["body"]["threadId"]
        await dap.set_breakpoints(str(script), [], within=WITHIN)
        found = []
        for _ in range(count):
            started = time.perf_counter()
            await dap.request("next", {"threadId": thread}, within=WITHIN)
            await dap.wait_for_event("stopped", within=WITHIN)
            found.append(time.perf_counter() - started)
        await dap.request("disconnect", within=WITHIN)
    return found


async def _steps_together(port: int, script: Path, count: int, forwarder: Forwarder) -> list[float]:
    async with await DapClient.connect("127.0.0.1", port) as dap:
        editor = AllRanksEditor(dap, forwarder)
        await dap.attach({str(script): [{"line": COUNT}]}, within=WITHIN)
        thread = (await editor.stops(4))["rank 0"]["threadId"]
        await editor.line("ranks 0-3 at")
        await dap.set_breakpoints(str(script), [], within=WITHIN)
        found = []
        for _ in range(count):
            started = time.perf_counter()
            await dap.request("next", {"threadId": thread}, within=WITHIN)
            for _rank in range(4):
                await dap.wait_for_event("stopped", within=WITHIN)
            found.append(time.perf_counter() - started)
            await editor.line("ranks 0-3 at")
        await dap.request("disconnect", within=WITHIN)
    return found


# Pretended ranks:


async def _pretended(relay: LocalRelay, count: int) -> Row:
    base, port = 6000, free_port()
    async with contextlib.AsyncExitStack() as stack:
        for number in range(AGENTS):
            ranks = range(number * RANKS // AGENTS, (number + 1) * RANKS // AGENTS)
            processes = [await stack.enter_async_context(_pretended_rank(base + rank, rank)) for rank in ranks]
            await stack.enter_async_context(agent(relay, Node(*processes)))
        client = await stack.enter_async_context(tunnels(relay))
        client.keep_searching()
        await client.search.wait_for(lambda: len(client.reachable_targets()) == RANKS or None, lambda _why: None)
        forwarder = await stack.enter_async_context(Forwarder(client, [all_ranks_port(port)]))
        together = await _session_steps(port, forwarder, count)
        opened = [await forwarder.open_free(Destination(base + rank)) for rank in range(RANKS)]
        apart = await _separate_steps([local.port for local in opened], count)
    values = {"separate connections": median_ms(apart), SESSION: median_ms(together), ADDED: median_ms(_added(count))}
    limits = {ADDED: Limit(10)}
    return Row(FIGURE, f"{RANKS} ranks on {AGENTS} agents", "ms", values, limits=limits)


@contextlib.asynccontextmanager
async def _pretended_rank(port: int, rank: int) -> AsyncIterator[Process]:
    async def debug(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        scripted, decoder = ScriptedRank(rank), MessageDecoder()
        while data := await reader.read(65536):
            scripted.received += map(dict, decoder.receive_data(data))
            while scripted.received:
                scripted.answer()
            writer.write(b"".join(encode(message) for message in scripted.sent))
            scripted.sent.clear()

    async with local_server(debug) as (local, _):
        yield Process(port, local, dap_only=True, rank=rank, world=RANKS)


async def _session_steps(port: int, forwarder: Forwarder, count: int) -> list[float]:
    async with await DapClient.connect("127.0.0.1", port) as dap:
        editor = AllRanksEditor(dap, forwarder)
        await dap.attach({FILE: [{"line": 1}]}, within=WITHIN)
        while "ranks 0-63 running" not in (await editor.threads()).values():
            await asyncio.sleep(0.05)
        entry = next(iter(editor.names))
        await dap.request("pause", {"threadId": entry}, within=WITHIN)
        await editor.line("ranks 0-63 at")
        found = []
        for _ in range(count):
            started = time.perf_counter()
            await dap.request("next", {"threadId": entry}, within=WITHIN)
            await editor.line("ranks 0-63 at")
            found.append(time.perf_counter() - started)
        await dap.request("disconnect", within=WITHIN)
    return found


async def _separate_steps(ports: list[int], count: int) -> list[float]:
    async with contextlib.AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(await DapClient.connect("127.0.0.1", port)) for port in ports]
        for dap in sessions:
            await dap.attach({}, pause=True, within=WITHIN)
            await dap.wait_for_event("stopped", within=WITHIN)

        async def step(dap: DapClient) -> None:
            await dap.request("next", {"threadId": MAIN}, within=WITHIN)
            await dap.wait_for_event("stopped", within=WITHIN)
            # As the session does, to know where it has stopped:
            await dap.request("stackTrace", {"threadId": MAIN, "startFrame": 0, "levels": 20}, within=WITHIN)

        found = []
        for _ in range(count):
            started = time.perf_counter()
            await asyncio.gather(*map(step, sessions))
            found.append(time.perf_counter() - started)
    return found


class _TimedStage(Stage):
    """A session without connections whose work is timed, with that of reading and writing its messages."""

    spent = 0.0

    def flush(self) -> None:
        started = time.perf_counter()
        for output in (outputs := self.session.take()):
            if isinstance(output, (ToEditor, ToRank)):
                encode(output.message)
        self.session.take = lambda: outputs  # type: ignore[method-assign]
        self.spent += time.perf_counter() - started
        super().flush()
        del self.session.take  # the class's own again

    def deliver(self, number: int) -> None:
        body = encode(self.ranks[number].sent[0])  # type: ignore[arg-type]
        started = time.perf_counter()
        message = MessageDecoder().receive_data(body)[0]
        self.ranks[number].sent.popleft()
        self.session.receive_rank(number, message, self.now)
        self.spent += time.perf_counter() - started
        self.flush()


def _added(count: int) -> list[float]:
    stage, _ = stopped(*range(RANKS), kind=_TimedStage)
    entry = stage.ask("threads")["threads"][0]["id"]
    found = []
    for _ in range(count):
        stage.spent = 0.0
        stage.ask("next", threadId=entry)
        stage.wait(1)
        found.append(stage.spent)
    return found
