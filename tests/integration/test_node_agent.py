"""Facts about the agent that the ranks of a node share, and about its end."""

import contextlib
import logging
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from relay_client.dap import Body, DapClient
from relay_core.errors import RelayDebugError
from tests.support.jobs.processes import gone
from tests.support.jobs.two_ranks import Rank, two_ranks
from tests.support.machine.deadline import DEADLINE
from tests.support.network.relay import LocalRelay

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes by /proc")

TERMINATE = "__import__('_pydevd_bundle.pydevd_api').pydevd_api.PyDevdAPI().terminate_process(__debugger__)"
"""What pydevd does at the `terminate` of an editor such as nvim-dap: it ends the process and its descendants."""


async def terminated_by_debugger(rank: Rank) -> None:
    expression = TERMINATE.replace("__debugger__", "__import__('pydevd').get_global_debugger()")
    with contextlib.suppress(RelayDebugError):  # a process that has ended does not answer
        await rank.evaluate(expression)


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
        (agent,) = node.agents()
        ended, other = node.ranks
        before = int(await other.evaluate("number"))
        await end(ended)
        assert await gone(ended.job.process.pid)
        assert before + 1 == int(await other.step())
        assert [agent] == node.agents()


async def test_the_agent_is_killed_at_a_breakpoint(
    relay: LocalRelay, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The editors get the reason and the end of the session, the ranks run on, and a debugger can attach again at once.

    The client keeps nothing of the dead agent. How long that takes is measured in `make bench`.
    """
    caplog.set_level(logging.INFO)
    async with two_ranks(relay, tmp_path) as node:
        (agent,) = node.agents()
        before = [int(await rank.evaluate("number")) for rank in node.ranks]
        (old,) = node.tunnels.roster
        agent.kill()
        for rank in node.ranks:
            await rank.session.wait_for_event("output", matching=says_killed, within=DEADLINE)
            await rank.session.wait_for_event("terminated", within=DEADLINE)
            await rank.session.close()
        while len(node.tunnels.roster) > 1:
            await node.tunnels.search.changed.wait()
        (new,) = node.tunnels.roster
        assert new.id != old.id
        assert (old.id,) == new.predecessors
        why = f"the agent process on {old.host} was killed; {new.name} has replaced it"
        assert f"tunnel to {old.name}: lost: {why}" in caplog.text
        for rank in node.ranks:
            rank.session = await DapClient.connect("127.0.0.1", rank.port, within=DEADLINE)
            async with rank.session:
                await rank.stop()
                assert int(await rank.evaluate("number")) > before[rank.port - node.ranks[0].port]
        assert 3 == caplog.text.count(f"lost: {why}")  # the tunnel, and one connection for each rank
        assert "is reconnecting (since" not in caplog.text
