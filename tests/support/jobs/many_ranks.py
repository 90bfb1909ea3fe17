"""A job of several ranks on one node, each a real process under `relay-agent run`, and an editor of all of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

from relay_client.agents.tunnels import Tunnels
from relay_client.dap import Body, DapClient
from relay_client.ports.forwarder import Forwarder
from relay_client.ports.local_port import all_ranks_port, debugger_ports
from relay_core.compat import timeout
from tests.support.jobs.running import running_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import Program
from tests.support.network.relay import LocalRelay
from tests.support.network.tunnel import QUICK


def ports_in_a_row(count: int) -> int:
    """Return the first of several ports in a row that nobody listens on."""
    while True:
        ports = [free_port() for _ in range(count)]
        if ports == list(range(ports[0], ports[0] + count)):
            return ports[0]


class Ranks:
    """The processes of a job, all on one node.

    Args:
        relay: To listen on.
        script: What each rank runs.
        world: Number of ranks.
        options: Of `relay-agent run`.
    """

    def __init__(self, relay: LocalRelay, script: Path, world: int, *options: str) -> None:
        self.script = script
        self.jobs: dict[int, Program] = {}
        self._relay = relay
        self._world = world
        self._options = options
        self.first_port = ports_in_a_row(world)
        self.ports = range(self.first_port, self.first_port + world)
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Ranks:
        try:
            for rank in range(self._world):
                await self.start(rank)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        for rank in self.jobs:  # before waiting for any: the agent has the stderr of the one that started it
            self.kill(rank)
        await self._stack.aclose()

    async def start(self, rank: int) -> Program:
        """Start the process of a rank, or start it again."""
        options = ["--port", str(self.first_port), "--debug-ranks", "none", *self._options]
        variables = {"RELAY_RANK": str(rank), "RELAY_WORLD_SIZE": str(self._world)}
        job = await self._stack.enter_async_context(
            running_job(self._relay, self.script, *options, cwd=self.script.parent, **variables)
        )
        if not self.jobs:  # the others find its agent
            await job.line("listening on")
        self.jobs[rank] = job
        return job

    def kill(self, rank: int) -> None:
        """Kill the process of a rank."""
        with contextlib.suppress(ProcessLookupError):
            self.jobs[rank].process.kill()


class AllRanksEditor:
    """An editor at the port of all ranks.

    Args:
        dap: Its connection.
        port: Where it is connected.
    """

    def __init__(self, dap: DapClient, port: int) -> None:
        self.dap = dap
        self.port = port
        self.names: dict[int, str] = {}
        """Threads by id, as last requested."""

    async def threads(self) -> dict[int, str]:
        """Request the threads, and return their names by id."""
        found = (await self.dap.request("threads", within=DEADLINE))["threads"]
        self.names = {each["id"]: each["name"] for each in found}
        return self.names

    async def until_listed(self, count: int) -> dict[int, str]:
        """Wait until so many main threads are listed."""
        while len([name for name in (await self.threads()).values() if "MainThread" in name]) != count:
            await self.dap.wait_for_event("thread", within=DEADLINE)
        return self.names

    async def stops(self, count: int) -> dict[str, Body]:
        """Wait for the stops of so many main threads; return the bodies of the events by name of the thread."""
        found: dict[str, Body] = {}
        while len(found) < count:
            body = (await self.dap.wait_for_event("stopped", within=DEADLINE))["body"]
            name = (await self.threads())[body["threadId"]]
            if "MainThread" in name:
                found[name.partition(" ·")[0]] = body
        return found

    async def stops_of(self, label: str) -> int:
        """Wait until the main thread of a rank stops, and return its id."""
        while True:
            body = (await self.dap.wait_for_event("stopped", within=DEADLINE))["body"]
            if (await self.threads()).get(body["threadId"]) == f"{label} · MainThread":
                return int(body["threadId"])

    async def line(self, part: str) -> str:
        """Return the next output of relay-client that contains a text, without the program's name."""

        def matches(body: Body) -> bool:
            return body.get("output", "").startswith("relay-client: ") and part in body["output"]

        event = await self.dap.wait_for_event("output", matching=matches, within=DEADLINE)
        return event["body"]["output"].removeprefix("relay-client: ").rstrip()

    async def move(self, command: str, thread: int, **arguments: Any) -> None:
        """Send `next`, `continue` or another request for a thread."""
        await self.dap.request(command, {"threadId": thread, **arguments}, within=DEADLINE)

    async def top(self, thread: int) -> Body:
        """Return the top frame of a thread."""
        arguments = {"threadId": thread, "startFrame": 0, "levels": 20}
        stack = await self.dap.request("stackTrace", arguments, within=DEADLINE)
        return stack["stackFrames"][0]

    async def set_variable(self, thread: int, name: str, value: str) -> None:
        """Set a local variable where a thread is stopped."""
        scopes = await self.dap.request("scopes", {"frameId": (await self.top(thread))["id"]}, within=DEADLINE)
        where = {"variablesReference": scopes["scopes"][0]["variablesReference"]}
        await self.dap.request("variables", where, within=DEADLINE)  # as an editor, which shows it before
        await self.dap.request("setVariable", {**where, "name": name, "value": value}, within=DEADLINE)

    async def evaluate(self, expression: str, thread: int | None = None, context: str = "repl") -> str:
        """Evaluate an expression where a thread is stopped, or a command."""
        frame = {} if thread is None else {"frameId": (await self.top(thread))["id"]}
        arguments = {"expression": expression, "context": context, **frame}
        return (await self.dap.request("evaluate", arguments, within=DEADLINE))["result"]


@contextlib.asynccontextmanager
async def all_ranks_editor(
    relay: LocalRelay, ports: Iterable[int] = (), **options: Any
) -> AsyncIterator[AllRanksEditor]:
    """Run a client with the port of all ranks, and connect an editor to it.

    Args:
        relay: Where the client finds the job.
        ports: Ports of ranks, for other editors.
        options: Of Tunnels.
    """
    port = free_port()
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        tunnels = await enter(
            Tunnels(relay.endpoint, relay.sender, relay.tls, settings=QUICK, tunnel_key=None, **options)
        )
        tunnels.keep_searching()
        await enter(Forwarder(tunnels, [all_ranks_port(port), *debugger_ports(ports)]))
        dap = await enter(await DapClient.connect("127.0.0.1", port, within=DEADLINE))
        yield AllRanksEditor(dap, port)


def line_of(source: str, code: str) -> int:
    """Return the number of the line that holds `code`."""
    return next(number for number, line in enumerate(source.splitlines(), start=1) if code in line)


async def until(condition: Any) -> None:
    """Wait until a condition holds."""
    async with timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.02)
