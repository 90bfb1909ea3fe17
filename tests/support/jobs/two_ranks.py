"""Two ranks of one node, the first of which has started the node's agent, and debug sessions at their breakpoints."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from relay_client.agents.tunnels import Tunnels
from relay_client.dap import DapClient
from relay_client.ports.forwarder import Forwarder
from tests.support.jobs.running import agents_on, running_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import Program
from tests.support.network.relay import LocalRelay
from tests.support.network.tunnel import QUICK

TRAIN = """\
import time

number = 0
while number < 1_000_000:
    number += 1
    time.sleep(0.01)
"""
LINE = 5
"""Of `number += 1`, where both ranks stop."""


@dataclass
class Rank:
    """A rank that stands at its breakpoint."""

    job: Program
    port: int
    script: Path
    session: DapClient
    thread: int = 0

    async def stop(self) -> None:
        """Attach, and wait until it stops at the breakpoint."""
        await self.session.attach({str(self.script): [{"line": LINE}]}, within=DEADLINE)
        await self._wait_for_stop()

    async def step(self) -> str:
        """Step over one line, and return the value of `number` there."""
        await self.session.request("next", {"threadId": self.thread}, within=DEADLINE)
        await self._wait_for_stop()
        return await self.evaluate("number")

    async def evaluate(self, expression: str) -> str:
        """Return the value of an expression in the frame where it stands."""
        stack = await self.session.request("stackTrace", {"threadId": self.thread, "levels": 1}, within=DEADLINE)
        arguments = {"expression": expression, "frameId": stack["stackFrames"][0]["id"], "context": "repl"}
        return (await self.session.request("evaluate", arguments, within=DEADLINE))["result"]

    async def _wait_for_stop(self) -> None:
        event = await self.session.wait_for_event("stopped", within=DEADLINE)
        self.thread = event["body"]["threadId"]


@dataclass
class Node:
    """The node, and the client of the two debug sessions."""

    directory: Path
    ranks: list[Rank]
    tunnels: Tunnels

    def agents(self) -> list[psutil.Process]:
        """Return the agents of the node that are running."""
        return agents_on(self.directory)


@contextlib.asynccontextmanager
async def two_ranks(relay: LocalRelay, directory: Path, **options: Any) -> AsyncIterator[Node]:
    """Run two ranks until both stand at a breakpoint; `options` are those of Tunnels."""
    script = directory / "train.py"
    script.write_text(TRAIN)
    ports = [0, free_port()]
    while ports[1] != ports[0] + 1:  # the port of rank 1 follows from that of rank 0
        ports = [ports[1], free_port()]
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        jobs = []
        for number in range(2):
            arguments = ["--port", str(ports[0]), "--debug-ranks", "none"]
            job = await enter(running_job(relay, script, *arguments, RELAY_RANK=str(number), RELAY_WORLD_SIZE="2"))
            if number == 0:  # the others find its agent
                await job.line("listening on")
            jobs.append(job)
        tunnels = await enter(
            Tunnels(relay.endpoint, relay.sender, relay.tls, settings=QUICK, tunnel_key=None, **options)
        )
        tunnels.keep_searching()
        await enter(Forwarder(tunnels, ports))
        ranks = []
        for job, port in zip(jobs, ports, strict=True):
            session = await enter(await DapClient.connect("127.0.0.1", port, within=DEADLINE))
            ranks.append(Rank(job, port, script, session))
        await asyncio.gather(*(rank.stop() for rank in ranks))
        try:
            yield Node(directory / "node", ranks, tunnels)
        finally:
            for job in jobs:  # before waiting for any: the agent has the stderr of the one that started it
                with contextlib.suppress(ProcessLookupError):
                    job.process.kill()
