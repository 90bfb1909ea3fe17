"""Facts about families: several hybrid connections with one name, for more agents than one accepts."""

import asyncio
import contextlib
import dataclasses
import logging
import time
from pathlib import Path

import pytest

from relay_client.agents.tunnels import Tunnels
from relay_client.ports.forwarder import Forwarder
from relay_core.agent_api.metadata import PortConflict
from relay_core.errors import TooManyListeners
from relay_core.net.hybrid.listener import HybridConnectionListener
from relay_server.config.model import HybridConnection, Limits
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.network.delayed_relay import AZURE, delayed
from tests.support.network.fleet import Node, node_of, tunnels, who_serves
from tests.support.network.relay import HC, LocalRelay, local_relay


async def until_agents(client: Tunnels, count: int) -> None:
    """Wait until the client reaches so many agents."""
    while client.roster.reachable != count:
        await asyncio.sleep(0.05)


def occupied(relay: LocalRelay) -> list[int]:
    """Return the number of listeners on each hybrid connection of the family."""
    counts = relay.server.listener_counts()
    return [counts[sibling.path] for sibling in relay.endpoint.siblings]


@pytest.mark.parametrize("selects", [True, False])
async def test_agents_use_every_hybrid_connection_and_are_one_list(
    tls_directory: Path, selects: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Eight agents fill four hybrid connections, each port reaches its own, and our programs log the family only."""
    caplog.set_level(logging.INFO)
    ports = {free_port(): f"node-{number}" for number in range(8)}
    limits = Limits(max_listeners=2)
    async with (
        local_relay(tls_directory, size=4, limits=limits, honour_listener_selection=selects) as relay,
        contextlib.AsyncExitStack() as stack,
    ):
        nodes = (node_of(relay, port, name=name) for port, name in ports.items())
        await asyncio.gather(*(stack.enter_async_context(node) for node in nodes))
        assert [2, 2, 2, 2] == occupied(relay)
        client = await stack.enter_async_context(tunnels(relay))
        await stack.enter_async_context(Forwarder(client, list(ports)))
        await client.discover_all()
        assert len(ports) == len(client.roster)
        answers = await asyncio.gather(*(who_serves(port) for port in ports))
        assert [f"{name}:{port}" for port, name in ports.items()] == answers
    ours = [record.message for record in caplog.records if not record.name.startswith("relay_server")]
    assert any(f"listening on '{HC}'" in message for message in ours)
    assert not [message for message in ours if f"{HC}-" in message]


async def test_a_full_family_is_one_sentence_with_the_remedy(tls_directory: Path) -> None:
    """A listener that finds no room on any of them reports the family, its size and how to enlarge it."""
    async with (
        local_relay(tls_directory, size=2, limits=Limits(max_listeners=1)) as relay,
        contextlib.AsyncExitStack() as stack,
    ):
        for _ in range(2):
            await stack.enter_async_context(node_of(relay, free_port()))
        extra = HybridConnectionListener(relay.endpoint, relay.listener, tls=relay.tls)
        await stack.enter_async_context(extra)
        with pytest.raises(TooManyListeners) as caught:
            async for _ in extra:
                pass
    assert caught.value.sentence == (
        f"all 2 hybrid connections of the family '{HC}' have as many listeners as the relay allows (25 each in Azure)"
    )
    assert f"infra/create_relay.sh --hc {HC} --nodes" in (caught.value.hint or "")


async def test_a_place_that_becomes_free_is_used(tls_directory: Path) -> None:
    """Agents that leave and come are found, wherever they listen."""
    async with (
        local_relay(tls_directory, size=3, limits=Limits(max_listeners=1)) as relay,
        contextlib.AsyncExitStack() as stack,
        tunnels(relay) as client,
    ):
        leaving = await stack.enter_async_context(contextlib.AsyncExitStack())
        await leaving.enter_async_context(node_of(relay, free_port()))
        for _ in range(2):
            await stack.enter_async_context(node_of(relay, free_port()))
        await client.discover_all()
        await asyncio.wait_for(until_agents(client, 3), DEADLINE)
        await leaving.aclose()
        await asyncio.wait_for(until_agents(client, 2), DEADLINE)
        port = free_port()
        await stack.enter_async_context(node_of(relay, port, name="new"))
        await stack.enter_async_context(Forwarder(client, [port]))
        assert f"new:{port}" == await who_serves(port)


async def test_an_agent_whose_hybrid_connection_is_deleted_moves(tls_directory: Path) -> None:
    """It listens on another one of the family, and the client resumes the session with it there."""
    async with (
        local_relay(tls_directory, size=3) as relay,
        tunnels(relay) as client,
        node_of(relay, port := free_port(), name="moving"),
        Forwarder(client, [port]),
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"who?\n")
        assert f"moving:{port}\n".encode() == await asyncio.wait_for(reader.readline(), DEADLINE)
        deleted = occupied(relay).index(1)
        config = relay.server.config
        left = [item for item in config.hybrid_connections if item.path != relay.endpoint.siblings[deleted].path]
        relay.server.reload(dataclasses.replace(config, hybrid_connections=tuple(left)))
        relay.server.drop_all()
        writer.write(b"who?\n")
        assert f"moving:{port}\n".encode() == await asyncio.wait_for(reader.readline(), DEADLINE)
        writer.close()
        assert 1 == len(client.roster)


async def test_a_client_does_without_a_deleted_hybrid_connection(tls_directory: Path) -> None:
    """Agents on the others are found."""
    async with local_relay(tls_directory, size=3) as relay:
        relay.server.reload(dataclasses.replace(relay.server.config, hybrid_connections=(HybridConnection(f"{HC}-2"),)))
        async with node_of(relay, free_port()), tunnels(relay) as client:
            await client.discover_all()
            assert 1 == len(client.roster)


async def test_claims_are_exact_across_hybrid_connections(tls_directory: Path) -> None:
    """Of two agents on different ones that claim a port, the earlier owns it, and both receive the conflict."""
    port = free_port()
    async with (
        local_relay(tls_directory, size=2, limits=Limits(max_listeners=1)) as relay,
        node_of(relay, port, name="first", since=time.time() - 60, fields={"host": "first"}, pid=1) as first,
        node_of(relay, port, name="second", since=time.time(), fields={"host": "second"}, pid=2) as second,
        tunnels(relay) as client,
        Forwarder(client, [port]),
    ):
        assert [1, 1] == occupied(relay)
        await client.discover_all()
        assert f"first:{port}" == await who_serves(port)
        expected = (PortConflict(port, "first pid 1", "second pid 2"),)
        await asyncio.wait_for(until_reported(first, second, expected), DEADLINE)


async def until_reported(first: Node, second: Node, expected: tuple[PortConflict, ...]) -> None:
    """Wait until both agents have received these conflicts."""
    while not all(node.statuses and node.statuses[-1].conflicts == expected for node in (first, second)):
        await asyncio.sleep(0.05)


async def test_a_family_is_found_at_the_delays_of_azure(tls_directory: Path) -> None:
    """16 agents on 4 hybrid connections are found within the time limit although each connection takes round trips."""
    ports = {free_port(): f"node-{number}" for number in range(16)}
    async with (
        local_relay(tls_directory, size=4, limits=Limits(max_listeners=4), make=delayed(AZURE)) as relay,
        contextlib.AsyncExitStack() as stack,
    ):
        nodes = (node_of(relay, port, name=name) for port, name in ports.items())
        await asyncio.gather(*(stack.enter_async_context(node) for node in nodes))
        client = await stack.enter_async_context(tunnels(relay))
        await client.discover_all()
        assert len(ports) == len(client.roster)
