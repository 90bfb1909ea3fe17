"""Facts about a node with more processes than an announcement has room for in full."""

import contextlib

from relay_client.ports.forwarder import Forwarder
from relay_core.agent_api.announcement import State
from tests.support.fleet import Node, Process, agent, process, tunnels, who_serves
from tests.support.ports import free_port
from tests.support.relay import LocalRelay


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
