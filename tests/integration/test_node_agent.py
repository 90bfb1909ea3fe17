"""Facts about the agent that the ranks of a node share, and about its end."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from relay_client.agents.tunnels import Tunnels
from relay_client.dap import Body, DapClient
from relay_core.errors import RelayDebugError
from tests.support.editors.stopped import Stopped
from tests.support.jobs.many_ranks import Ranks, line_of
from tests.support.jobs.processes import gone
from tests.support.jobs.running import agents_on
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.programs import Program
from tests.support.network.relay import LocalRelay
from tests.support.network.tunnel import forwarding

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes by /proc")

TERMINATE = "__import__('_pydevd_bundle.pydevd_api').pydevd_api.PyDevdAPI().terminate_process(__debugger__)"
"""What pydevd does at the `terminate` of an editor such as nvim-dap: it ends the process and its descendants."""


TRAIN = """\
import time

number = 0
while number < 1_000_000:
    number += 1
    time.sleep(0.01)
"""


class Rank(Stopped):
    """A rank that stands at its breakpoint."""

    def __init__(self, job: Program, port: int, script: Path) -> None:
        self.job = job
        self.port = port
        self._script = script

    async def attach(self) -> DapClient:
        """Attach, and wait until it stops at the breakpoint."""
        self.client = await DapClient.connect("127.0.0.1", self.port, within=DEADLINE)
        await self.client.attach({str(self._script): [{"line": line_of(TRAIN, "number += 1")}]}, within=DEADLINE)
        await self.until_stopped()
        return self.client


@dataclass
class Node:
    """The node, and the client of the two debug sessions."""

    agent: psutil.Process
    ranks: list[Rank]
    tunnels: Tunnels


@contextlib.asynccontextmanager
async def two_ranks(relay: LocalRelay, directory: Path) -> AsyncIterator[Node]:
    """Run two ranks, the first of which has started the node's agent, until both stand at a breakpoint."""
    script = directory / "train.py"
    script.write_text(TRAIN)
    async with (
        Ranks(relay, script, 2) as job,
        forwarding(relay, job.ports) as tunnels,
        contextlib.AsyncExitStack() as stack,
    ):
        ranks = [Rank(job.jobs[number], port, script) for number, port in enumerate(job.ports)]
        for client in await asyncio.gather(*(rank.attach() for rank in ranks)):
            await stack.enter_async_context(client)
        (agent,) = agents_on(directory / "node")
        yield Node(agent, ranks, tunnels)


async def terminated_by_debugger(rank: Rank) -> None:
    expression = TERMINATE.replace("__debugger__", "__import__('pydevd').get_global_debugger()")
    with contextlib.suppress(RelayDebugError):  # a process that has ended does not answer
        await rank.value(expression, "repl")


async def ended_by_launcher(rank: Rank) -> None:
    family = psutil.Process(rank.job.process.pid)
    for process in [*family.children(recursive=True), family]:
        os.kill(process.pid, signal.SIGKILL)


def says_killed(body: Body) -> bool:
    return "was killed; " in body["output"]


@pytest.mark.parametrize("end", [terminated_by_debugger, ended_by_launcher])
async def test_a_rank_is_ended_with_its_process_tree(relay: LocalRelay, tmp_path: Path, end) -> None:
    """The rank whose process started the agent ends, while the agent and the sessions of other ranks continue."""
    async with two_ranks(relay, tmp_path) as node:
        ended, other = node.ranks
        before = int(await other.value("number", "repl"))
        await end(ended)
        assert await gone(ended.job.process.pid)
        await other.step()
        assert before + 1 == int(await other.value("number", "repl"))
        assert [node.agent] == agents_on(tmp_path / "node")


async def test_the_agent_is_killed_at_a_breakpoint(
    relay: LocalRelay, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The editors get the reason and the end of the session, the ranks run on, and a debugger can attach again at once.

    The client keeps nothing of the dead agent. How long that takes is measured in `make bench`.
    """
    caplog.set_level(logging.INFO)
    async with two_ranks(relay, tmp_path) as node:
        before = [int(await rank.value("number", "repl")) for rank in node.ranks]
        (old,) = node.tunnels.roster
        node.agent.kill()
        for rank in node.ranks:
            await rank.client.wait_for_event("output", matching=says_killed, within=DEADLINE)
            await rank.client.wait_for_event("terminated", within=DEADLINE)
            await rank.client.close()
        while len(node.tunnels.roster) > 1:
            await node.tunnels.search.changed.wait()
        (new,) = node.tunnels.roster
        assert new.id != old.id
        assert (old.id,) == new.predecessors
        why = f"the agent process on {old.host} was killed; {new.name} has replaced it"
        assert f"tunnel to {old.name}: lost: {why}" in caplog.text
        for rank in node.ranks:
            async with await rank.attach():
                assert int(await rank.value("number", "repl")) > before[rank.port - node.ranks[0].port]
        assert 3 == caplog.text.count(f"lost: {why}")  # the tunnel, and one connection for each rank
        assert "is reconnecting (since" not in caplog.text
