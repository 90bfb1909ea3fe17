"""An editor of all ranks of a job, at the one port for them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

from relay_client.dap import Body, DapClient
from relay_client.ports.local_port import all_ranks_port, debugger_ports
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.network.relay import LocalRelay
from tests.support.network.tunnel import forwarding


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
    async with (
        forwarding(relay, [all_ranks_port(port), *debugger_ports(ports)], **options),
        await DapClient.connect("127.0.0.1", port, within=DEADLINE) as dap,
    ):
        yield AllRanksEditor(dap, port)
