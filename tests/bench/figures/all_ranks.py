"""A step of all ranks in one debug session.

Four real ranks on one node: from `next` until all have stopped, beside the slowest of the four when each is stepped
alone on its own port while the others are stopped, and beside four editors that step at the same time. Each program is
a process of its own, and the editor is this one. What the machine can do is the time of four debuggers without agents,
relay and client, which also step at the same time.

Sixty-four pretended ranks on sixteen agents, whose debuggers answer at once: from `next` until the line that sums up,
beside sixty-four editors that send the same request at once, until the last has its stack. Relay,
agents, debuggers and client share one process there. What the session adds to the connections is its own work: the
reading, translating and writing of all messages of one step, measured without any connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

from relay_client.agents.roster import Destination
from relay_client.dap import DapClient
from relay_client.demo.environment import Child
from relay_client.job_session.wire import ToEditor, ToRank
from relay_client.ports.forwarder import Forwarder
from relay_client.ports.local_port import all_ranks_port
from relay_core.dap.framing import MessageDecoder, encode
from tests.bench.figures.stepping import start_debuggee
from tests.bench.programs import lines_of
from tests.bench.report import Limit, Row, median_ms
from tests.bench.stage import Stage as BenchStage
from tests.bench.steps import Editor, attach
from tests.support.editors.all_ranks import AllRanksEditor
from tests.support.jobs.many_ranks import line_of
from tests.support.machine.ports import consecutive_ports, free_port
from tests.support.machine.streams import local_server
from tests.support.network.fleet import Node, Process, agent, tunnels
from tests.support.network.relay import LocalRelay, local_relay
from tests.support.sessions.scripted_ranks import FILE, MAIN, ScriptedRank, Stage, stopped

__all__ = ["all_ranks"]

FIGURE = "step of all ranks"
WITHIN = 120.0
SLOWEST = "slowest rank alone"
APART = "separate connections"
"""An editor for each rank, which all step at the same time."""
DEBUGGERS = "only debuggers"
"""Four debuggers that step at the same time, with nothing between them and their editors."""
SESSION = "all ranks"
ADDED = "of that, the session"
REAL = 4
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
    """Real ranks, then many pretended ones, whose own work does not depend on delays."""
    count = 10 if quick else 40
    row = await _real(stage, count)
    if stage.delays:
        return [row]
    row.values[DEBUGGERS] = await _debuggers_alone(stage, count)
    with TemporaryDirectory() as directory:
        async with local_relay(Path(directory) / "tls") as relay:
            return [row, await _pretended(relay, count)]


# Real ranks:


async def _real(stage: BenchStage, count: int) -> Row:
    script = stage.programs.directory / "train.py"
    script.write_text(TRAIN)
    first, port = consecutive_ports(REAL)[0], free_port()
    jobs = [await _start_rank(stage, script, first, rank) for rank in range(REAL)]
    client = await stage.begin_client("--ports", f"{first}-{first + REAL - 1}", "--all-ranks", str(port))
    await lines_of(client, lambda text: "ready on" in text)
    async with contextlib.AsyncExitStack() as stack:
        editors = await _separate_editors(stack, list(range(first, first + REAL)))
        alone = [median_ms(await _separate_steps([editor], count)) for editor in editors]  # the other ranks are stopped
        apart = median_ms(await _separate_steps(editors, count))
        for editor in editors:
            await editor.request("disconnect", within=WITHIN)
    together = median_ms(await _steps_together(port, script, count))
    for child in (client, *jobs):
        await stage.programs.end(child)
    values = {SLOWEST: max(alone), APART: apart, SESSION: together}
    limits = {SESSION: Limit(1.3, "ratio")}
    return Row(FIGURE, "4 ranks on a node, next until stopped", "ms", values, limits=limits, detail={"alone": alone})


async def _start_rank(stage: BenchStage, script: Path, first: int, rank: int) -> Child:
    """Start a rank under `relay-agent run`, and return once a debugger can attach to it."""
    node = stage.programs.directory / f"node-{first}"
    variables = {"RELAY_RANK": rank, "RELAY_WORLD_SIZE": REAL, "RELAY_NODE_DIR": node}
    command = ["env", *(f"{name}={value}" for name, value in variables.items()), sys.executable, "-m", "relay_agent"]
    options = [*stage.agent_access(), "--port", str(first), "--debug-ranks", "none"]
    child = await stage.programs.start("rank", *command, "run", *options, "--", sys.executable, str(script))
    await lines_of(child, lambda text: f"rank {rank}: a debugger can attach" in text)
    return child


async def _steps_together(port: int, script: Path, count: int) -> list[float]:
    async with await DapClient.connect("127.0.0.1", port) as dap:
        editor = AllRanksEditor(dap, port)
        await dap.attach({str(script): [{"line": COUNT}]}, within=WITHIN)
        thread = (await editor.stops(REAL))["rank 0"]["threadId"]
        await editor.line("ranks 0-3 at")
        await dap.set_breakpoints(str(script), [], within=WITHIN)
        found = []
        for _ in range(count):
            started = time.perf_counter()
            await dap.request("next", {"threadId": thread}, within=WITHIN)
            for _rank in range(REAL):
                await dap.wait_for_event("stopped", within=WITHIN)
            found.append(time.perf_counter() - started)
            await editor.line("ranks 0-3 at")
        await dap.request("disconnect", within=WITHIN)
    return found


async def _debuggers_alone(stage: BenchStage, count: int) -> float:
    ports = [await start_debuggee(stage) for _ in range(REAL)]
    editors = [Editor(port, prompt=True) for port in ports]
    threads = await asyncio.gather(*(asyncio.to_thread(attach, editor) for editor in editors))

    def step(editor: Editor, thread: int) -> None:
        editor.request("next", threadId=thread)
        editor.event("stopped")

    found = []
    for _ in range(count):
        started = time.perf_counter()
        await asyncio.gather(*(asyncio.to_thread(step, *pair) for pair in zip(editors, threads, strict=True)))
        found.append(time.perf_counter() - started)
    for editor in editors:
        editor.close()
    return median_ms(found)


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
        together = await _session_steps(port, count)
        opened = [await forwarder.open_free(Destination(base + rank)) for rank in range(RANKS)]
        editors = await _separate_editors(stack, [local.port for local in opened])
        apart = await _separate_steps(editors, count, with_stack=True)  # the session requests it, too
    values = {APART: median_ms(apart), SESSION: median_ms(together), ADDED: median_ms(_added(count))}
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


async def _session_steps(port: int, count: int) -> list[float]:
    async with await DapClient.connect("127.0.0.1", port) as dap:
        editor = AllRanksEditor(dap, port)
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


async def _separate_editors(stack: contextlib.AsyncExitStack, ports: list[int]) -> list[DapClient]:
    """Return an editor for each rank, all of which are stopped."""
    editors = [await stack.enter_async_context(await DapClient.connect("127.0.0.1", port)) for port in ports]
    for dap in editors:
        await dap.attach({}, pause=True, within=WITHIN)
        await dap.wait_for_event("stopped", within=WITHIN)
    return editors


async def _separate_steps(editors: list[DapClient], count: int, *, with_stack: bool = False) -> list[float]:
    """Return how long it takes until all editors have stepped their ranks, and have the call stacks if wanted."""

    async def step(dap: DapClient) -> None:
        await dap.request("next", {"threadId": MAIN}, within=WITHIN)
        await dap.wait_for_event("stopped", within=WITHIN)
        if with_stack:
            await dap.request("stackTrace", {"threadId": MAIN, "startFrame": 0, "levels": 20}, within=WITHIN)

    found = []
    for _ in range(count):
        started = time.perf_counter()
        await asyncio.gather(*map(step, editors))
        found.append(time.perf_counter() - started)
    return found


class _TimedStage(Stage):
    """A session without connections whose work is timed, with that of reading and writing its messages."""

    spent = 0.0

    def flush(self) -> None:
        started = time.perf_counter()
        for output in (outputs := self.session.wire.take()):
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
