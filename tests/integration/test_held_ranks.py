"""Facts about held ranks of a job with two nodes: what the agent of the other node receives, with real tunnels."""

from tests.support.machine.deadline import until
from tests.support.machine.ports import consecutive_ports
from tests.support.network.fleet import node_of, tunnels
from tests.support.network.relay import LocalRelay


async def test_held_rank_of_another_node(relay: LocalRelay) -> None:
    """An agent receives that a rank of its job is held on another node, until the rank or the client is gone."""
    port = consecutive_ports(2)[0]
    async with (
        node_of(relay, port, name="held", rank=0) as held,
        node_of(relay, port + 1, name="peer", rank=1) as peer,
    ):
        async with tunnels(relay) as client:
            await client.discover_all()
            assert frozenset() == peer.held_jobs
            held.change(port, state="waiting")
            await until(lambda: peer.held_jobs == {port})
            held.change(port, state="running")
            await until(lambda: not peer.held_jobs)
            held.change(port, state="crashed")
            await until(lambda: peer.held_jobs == held.held_jobs == {port})
        await until(lambda: not peer.held_jobs)
        assert held.held_jobs == {port}
