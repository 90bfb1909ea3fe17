"""Facts about sessions whose transports are cut, starved, restarted and recycled, over real sockets."""

import asyncio
import contextlib
import logging
import random
from dataclasses import replace

import pytest

from relay_agent.agent.port_targets import PortTarget
from relay_core.compat import timeout
from relay_core.hyco import backoff
from relay_core.net.session.agent import Grace
from relay_core.net.session.client import LinkState
from relay_core.net.tasks import TaskSet
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.streams import echo, local_server
from tests.support.network.chaos import CutSchedule
from tests.support.network.relay import LocalRelay, recycle_listeners
from tests.support.network.tunnel import QUICK, EchoClient, echo_client, running_agent, tunnelled


@pytest.mark.parametrize("encrypted", [True, False])
async def test_nothing_is_lost_or_doubled_over_many_cuts(relay: LocalRelay, encrypted: bool) -> None:
    """Over 60 cuts, three connections at once get all their bytes back, once and in order."""
    async with tunnelled(relay, encrypted=encrypted) as path, contextlib.AsyncExitStack() as stack:
        schedule = CutSchedule(path.chaos, seed=7)
        clients = [await stack.enter_async_context(echo_client(path.port, seed)) for seed in range(3)]

        async def keep_sending(client: EchoClient) -> None:
            while path.chaos.connections < 60:
                await client.exchange(100_000)

        await asyncio.gather(*(keep_sending(client) for client in clients))
        schedule.stop()
        await asyncio.gather(*(client.exchange(100_000) for client in clients))
        assert [1, 2, 3] == path.target_connections


async def test_a_restarted_relay_costs_no_connection(relay: LocalRelay) -> None:
    """A connection survives a relay that goes down and comes back."""
    async with tunnelled(relay) as path, echo_client(path.port) as client:
        await client.exchange(1000)
        await relay.server.stop()
        exchange = asyncio.ensure_future(client.exchange(1_000_000))
        await asyncio.sleep(0)
        await relay.server.start()
        await exchange


async def test_a_killed_relay_costs_no_connection(relay: LocalRelay) -> None:
    """A connection survives a relay that drops everything without a goodbye."""
    async with tunnelled(relay) as path, echo_client(path.port) as client:
        await client.exchange(1000)
        await relay.server.kill()
        await relay.server.start()
        await client.exchange(1_000_000)


async def test_an_attached_debugger_gets_through_soon_after_an_outage(
    relay: LocalRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the longest possible delays, agent and client still return soon after a relay that was away."""
    monkeypatch.setattr(random, "random", lambda: 0.999)
    monkeypatch.setattr(backoff, "FIRST_CEILING", 7200.0)  # any calm delay is an hour
    async with tunnelled(relay) as path, echo_client(path.port) as client:
        await client.exchange(1000)
        await relay.server.kill()
        attempts = path.chaos.connections + 12
        async with timeout(DEADLINE):
            while path.chaos.connections < attempts:
                await asyncio.sleep(0.01)
        await relay.server.start()
        await asyncio.wait_for(client.exchange(1000), DEADLINE)


async def test_a_client_without_a_debugger_retries_calmly(relay: LocalRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that nobody uses doubles its delays during an outage."""
    monkeypatch.setattr(random, "random", lambda: 0.999)
    async with tunnelled(relay) as path:
        async with echo_client(path.port) as client:
            await client.exchange(1000)
        while any(tunnel.driver.streams for tunnel in path.tunnels._tunnels.values()):
            await asyncio.sleep(0.01)
        await relay.server.kill()
        started, attempts = asyncio.get_running_loop().time(), path.chaos.connections + 5
        while path.chaos.connections < attempts:
            await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() - started > 2.5  # 0.2 + 0.4 + 0.8 + 1.6; prompt ones take 1.1


async def test_a_tunnel_that_is_back_brings_back_the_others(relay: LocalRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as one tunnel of a client is connected again, the others dial without waiting for their delay."""
    async with (
        tunnelled(relay, encrypted=False) as path,
        local_server(echo) as (target_port, _),
        running_agent(relay, {1: PortTarget(1, target_port)}, tunnel_key=None),
        echo_client(path.port) as client,
    ):
        await client.exchange(1000)
        stream = await path.tunnels.open(1)
        first, second = path.tunnels._tunnels.values()
        for tunnel in (first, second):
            monkeypatch.setattr(tunnel._backoff, "next_delay", lambda **_: 3600.0)
        await relay.server.kill()
        await relay.server.start()
        while len(list(relay.server._gateway.matchmaker.registry.listeners)) < 2:
            await asyncio.sleep(0.01)
        while {LinkState.RECONNECTING} != {first.status.state, second.status.state}:
            await asyncio.sleep(0.01)
        second.hurry()
        await asyncio.wait_for(client.exchange(1000), DEADLINE)
        await stream.write(b"x")
        assert b"x" == await asyncio.wait_for(stream.read(), DEADLINE)


@pytest.mark.parametrize("lane", ["up", "down"])
async def test_a_one_way_blackhole_is_noticed(relay: LocalRelay, lane: str) -> None:
    """When bytes vanish in one direction with the sockets open, the transport is replaced, and nothing is lost."""
    async with tunnelled(relay) as path, echo_client(path.port) as client:
        await client.exchange(1000)
        getattr(path.chaos, lane).blackhole = True
        exchange = asyncio.ensure_future(client.exchange(200_000))
        await asyncio.sleep(0.5)
        getattr(path.chaos, lane).blackhole = False  # for new connections; the old one has lost bytes for good
        await exchange
        assert path.chaos.connections > 1


async def test_a_recycled_listener_replaces_the_transport_before_it_breaks(
    relay: LocalRelay, caplog: pytest.LogCaptureFixture
) -> None:
    """After a 1011 on the control channel the client moves over to a new transport without a gap."""
    caplog.set_level(logging.INFO)
    async with tunnelled(relay) as path, echo_client(path.port) as client:
        await client.exchange(1000)
        before = path.chaos.connections
        recycle_listeners(relay.server)
        while path.chaos.connections == before or len(path.chaos.live) > 1:
            await client.exchange(10_000)
        await client.exchange(100_000)
    assert "reconnecting" not in caplog.text


async def test_half_close_survives_a_cut(relay: LocalRelay) -> None:
    """A target that answers only after EOF does so, even if the tunnel is cut in between."""

    async def answer_after_eof(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(str(len(await reader.read())).encode())

    async with tunnelled(relay, answer_after_eof) as path:
        reader, writer = await asyncio.open_connection("127.0.0.1", path.port)
        writer.write(bytes(300_000))
        writer.write_eof()
        path.chaos.cut()
        assert await reader.read() == b"300000"
        writer.close()
        await writer.wait_closed()


async def test_a_reset_hurts_only_its_own_connection(relay: LocalRelay) -> None:
    """One connection that breaks leaves its neighbour on the same session alone."""
    async with tunnelled(relay) as path, echo_client(path.port) as neighbour:
        await neighbour.exchange(1000)
        _, writer = await asyncio.open_connection("127.0.0.1", path.port)
        writer.write(bytes(100_000))
        writer.transport.abort()
        await neighbour.exchange(1_000_000)


async def test_a_client_that_stays_away_too_long_loses_its_connections(relay: LocalRelay) -> None:
    """After the agent's grace the target is released, and the client reports that the session is lost."""
    released = asyncio.Event()

    async def note_end(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read(-1)
        released.set()

    async with tunnelled(relay, note_end, grace=Grace(idle=0.2, in_use=0.5)) as path:
        reader, writer = await asyncio.open_connection("127.0.0.1", path.port)
        writer.write(b"x")
        while not path.target_connections:
            await asyncio.sleep(0.01)
        path.chaos.accepting = False
        path.chaos.cut()
        await asyncio.wait_for(released.wait(), DEADLINE)
        path.chaos.accepting = True
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), DEADLINE) == b""
        writer.transport.abort()


async def test_the_reported_state_is_correct(relay: LocalRelay, caplog: pytest.LogCaptureFixture) -> None:
    """The client logs connected with a round trip, reconnecting with a reason, and connected again."""
    caplog.set_level(logging.INFO, "relay_client")
    async with tunnelled(relay) as path, echo_client(path.port) as client:
        while "connected, round trip" not in caplog.text:
            await client.exchange(10)
        path.chaos.accepting = False
        path.chaos.cut()
        while ": reconnecting since " not in caplog.text:
            await asyncio.sleep(0.01)
        caplog.clear()
        await asyncio.sleep(0.3)
        assert ": connected" not in caplog.text
        path.chaos.accepting = True
        await client.exchange(1000)
        while ": connected, round trip" not in caplog.text:
            await client.exchange(10)


async def test_silence_is_not_called_connected(relay: LocalRelay, caplog: pytest.LogCaptureFixture) -> None:
    """While nothing is received, the client does not claim to be connected."""
    caplog.set_level(logging.INFO, "relay_client")
    patient = replace(QUICK, dead_after=60.0)
    async with tunnelled(relay, settings=patient) as path, echo_client(path.port) as client:
        await client.exchange(10)
        while "connected, round trip" not in caplog.text:
            await asyncio.sleep(0.01)
        path.chaos.down.blackhole = True
        while ": not answering since " not in caplog.text:
            await asyncio.sleep(0.05)
        path.chaos.down.blackhole = False
        path.chaos.cut()


async def test_sixty_four_connections_share_fairly(relay: LocalRelay) -> None:
    """64 connections that send at once get through at the same pace, within 20 %, once each has used its window."""
    count = 64
    received = [0] * count
    progress = asyncio.Event()

    async def number_and_count(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        number = (await reader.readexactly(1))[0]
        while data := await reader.read(65536):
            received[number] += len(data)
            progress.set()

    async def flood(port: int, number: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(bytes([number]))
            while True:
                writer.write(bytes(32768))
                await writer.drain()
        finally:
            writer.transport.abort()

    async def until_all_have(amount: int) -> list[int]:
        while min(received) < amount:
            progress.clear()
            await progress.wait()
        return list(received)

    async with tunnelled(relay, number_and_count) as path:
        async with TaskSet() as tasks:
            for number in range(count):
                tasks.spawn(flood(path.port, number), name=f"flood {number}")
            start = await until_all_have(1_500_000)
            end = await until_all_have(4_000_000)
        amounts = [after - before for before, after in zip(start, end, strict=True)]
    mean = sum(amounts) / count
    assert all(0.8 * mean <= amount <= 1.2 * mean for amount in amounts), sorted(amounts)
