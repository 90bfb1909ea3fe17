"""Facts about ports of a node that relay-client forwards: where a connection goes, and what the logs contain."""

import asyncio
import logging
import time

import pytest

from relay_client.agents.roster import Destination
from relay_client.ports.forwarder import Forwarder
from relay_client.ports.local_port import parse_forwards
from relay_core.errors import NoListener
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.network.fleet import Node, Process, agent, process, tunnels, who_serves
from tests.support.network.relay import LocalRelay


async def test_forwards_go_to_the_node_that_is_named(relay: LocalRelay) -> None:
    """A forward goes to the agent that offers it with the lowest node rank, or to the node that is named."""
    remote, any_node, second_node = free_port(), free_port(), free_port()
    async with (
        process(remote, "one") as one,
        process(remote, "two") as two,
        tunnels(relay) as client,
        Forwarder(client, parse_forwards([f"{remote}:{any_node}", f"1/{remote}:{second_node}"])),
    ):
        nodes = Node(node_rank=1), Node(node_rank=0)
        nodes[0].forwards[remote], nodes[1].forwards[remote] = two, one
        async with agent(relay, nodes[0]), agent(relay, nodes[1]):
            await client.discover_all()
            assert "one" == await who_serves(any_node)
            assert "two" == await who_serves(second_node)


@pytest.mark.parametrize(("level", "client_lines"), [(logging.INFO, 0), (logging.DEBUG, 1)])
async def test_a_forward_is_quiet(
    relay: LocalRelay, caplog: pytest.LogCaptureFixture, level: int, client_lines: int
) -> None:
    """A connection to a forwarded port is at most one line of relay-client's verbose log, and none of the job's."""
    remote, local = free_port(), free_port()
    async with process(remote, "web") as web, tunnels(relay) as client:
        node = Node()
        node.forwards[remote] = web
        async with agent(relay, node), Forwarder(client, parse_forwards([f"{remote}:{local}"])) as forwarder:
            await client.discover_all()
            caplog.clear()
            for name in ("relay_agent", "relay_client"):
                caplog.set_level(level if name == "relay_client" else logging.INFO, name)
            for _ in range(3):
                assert "web" == await who_serves(local)
            deadline = time.monotonic() + DEADLINE
            while list(forwarder.connections):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
    ours = [record for record in caplog.records if record.name.startswith("relay_client")]
    assert 3 * client_lines == sum(f"port {local} " in record.getMessage() for record in ours)
    assert [] == [record for record in caplog.records if f"port {remote}: " in record.getMessage()]


async def test_a_forward_that_nobody_serves_is_one_line(relay: LocalRelay, caplog: pytest.LogCaptureFixture) -> None:
    """Several connections to a port of the node on which nothing listens are closed, and the reason is logged once."""
    remote, local = free_port(), free_port()
    caplog.set_level(logging.INFO, "relay_client")
    async with tunnels(relay) as client:
        node = Node()
        node.forwards[remote] = Process(remote, free_port())
        async with agent(relay, node), Forwarder(client, parse_forwards([f"{remote}:{local}"])):
            await client.discover_all()
            for _ in range(3):
                assert "" == await who_serves(local)
    assert 1 == caplog.text.count("nothing is listening on 127.0.0.1:")


async def test_what_no_agent_forwards_is_not_reached(relay: LocalRelay) -> None:
    """A port of the node that its agent does not announce is not even asked for."""
    remote = free_port()
    async with agent(relay, Node()), tunnels(relay) as client:
        with pytest.raises(NoListener, match=f"no agent on 'myhc' serves port {remote}; "):
            await client.open(Destination(remote, is_forward=True))
