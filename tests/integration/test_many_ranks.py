"""Facts about a node with more processes than an announcement has room for in full."""

import asyncio
import contextlib

import pytest

from relay_agent.agent import agent as agent_module
from relay_agent.agent.agent import Agent
from relay_client.ports.forwarder import Forwarder
from relay_core.agent_api.announcement import State
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.network.fleet import Node, Process, agent, process, tunnels, who_serves
from tests.support.network.relay import LocalRelay


async def test_a_thousand_ranks_on_one_node(relay: LocalRelay) -> None:
    """They are announced, found, shown with rank and state, and one is reached."""
    port = free_port()
    fields = {"world": 1000, "script": "train.py", "state": "running", "since": 1e9 + 1 / 7}
    async with process(port, "rank 0") as first, contextlib.AsyncExitStack() as stack:
        first.fields |= {"rank": 0, **fields}
        node = Node(
            first, *(Process(port + rank, 1, rank=rank, pid=100_000 + rank, **fields) for rank in range(1, 1000))
        )
        await stack.enter_async_context(agent(relay, node))
        client = await stack.enter_async_context(tunnels(relay))
        await client.discover()
        node.change(port + 7, state="crashed", detail="ValueError: " + "x" * 500)
        while not any(claim.target.state is State.CRASHED for claim in client.reachable_targets()):
            await client.search.changed.wait()
        found = [claim.target for claim in client.reachable_targets()]
        assert [(rank, port + rank, "train.py") for rank in range(1000)] == [(t.rank, t.port, t.script) for t in found]
        assert [7] == [target.rank for target in found if target.state is State.CRASHED]
        await stack.enter_async_context(Forwarder(client, [port]))
        assert "rank 0" == await who_serves(port)


class CountingAgent(Agent):
    """An agent that counts the announcements that it makes."""

    made = 0

    def _fitted(self) -> dict[str, object]:
        self.made += 1
        return super()._fitted()


async def test_a_thousand_ranks_change_together(relay: LocalRelay) -> None:
    """They register, crash and leave in few announcements; the client sees the last state of each."""
    port, fields = free_port(), {"world": 1000, "script": "train.py"}
    ranks = [Process(port + rank, 1, rank=rank, pid=100_000 + rank, **fields) for rank in range(1000)]
    node = Node()
    async with agent(relay, node, CountingAgent) as running, tunnels(relay) as client:
        assert isinstance(running, CountingAgent)
        await client.discover()
        before = running.made
        for rank in ranks:
            node.put(rank)
        while len(client.reachable_targets()) < 1000:
            await client.search.changed.wait()
        for rank in ranks:
            node.change(rank.logical_port, state="crashed", detail=f"RuntimeError: in rank {rank.fields['rank']}")
        while {State.CRASHED} != {claim.target.state for claim in client.reachable_targets()}:
            await client.search.changed.wait()
        for rank in ranks:
            node.remove(rank.logical_port)
        while client.reachable_targets():
            await client.search.changed.wait()
        assert running.made - before <= 6


async def test_the_last_state_precedes_the_goodbye(relay: LocalRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes right before the agent's exit is announced before the session ends."""
    monkeypatch.setattr(agent_module, "ANNOUNCEMENT_INTERVAL", 10 * DEADLINE)
    port, seen, over = free_port(), set(), asyncio.Event()
    node = Node(Process(port, 1, state="running"))
    async with tunnels(relay) as client:

        def changed() -> None:
            seen.update(target.state for info in client.roster for target in info.targets)
            if not len(client.roster):
                over.set()

        async with agent(relay, node):
            await client.discover()
            client.on_change = changed
            node.change(port, state="waiting")
            node.change(port, state="crashed")
            assert State.CRASHED not in seen
        await asyncio.wait_for(over.wait(), DEADLINE)
    assert State.CRASHED in seen
