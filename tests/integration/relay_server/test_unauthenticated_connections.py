"""Facts about connections that ask nothing: whoever opens many does not keep others out."""

import socket
from contextlib import AsyncExitStack

import pytest

from tests.integration.relay_server.waiting import eventually
from tests.support.machine.deadline import DEADLINE
from tests.support.network.raw_websocket import TEXT, RawConnection, Target, finish_websocket

LIMITS = {"max_unauthenticated": 12, "max_unauthenticated_per_address": 8}


def connect_from(host: str, target: Target) -> socket.socket:
    """Open a TCP connection from an address of the loopback network, and send nothing."""
    return socket.create_connection(("127.0.0.1", target.port), timeout=DEADLINE, source_address=(host, 0))


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.fixture
async def relay(start_relay, monkeypatch):
    """A relay with few places, which has more patience with idle connections than these tests."""
    monkeypatch.setattr("relay_server.gateway.HEAD_TIMEOUT", 3600)
    monkeypatch.setattr("relay_server.server.TLS_HANDSHAKE_TIMEOUT", 3600)
    return await start_relay(limits=LIMITS)


async def test_idle_connections_block_nobody(relay):
    """With many TLS connections that ask nothing, a listener and a sender are served at once; only a few are kept."""
    async with AsyncExitStack() as stack:
        for _ in range(30):
            await stack.enter_async_context(await RawConnection.dial(relay.target))
        await eventually(lambda: relay.server.metrics().connections == LIMITS["max_unauthenticated_per_address"])
        sender, listener = await relay.pair()
        await sender.send(TEXT, b"through")
        assert (TEXT, b"through") == await listener.read_message()


async def test_connections_without_tls_block_nobody(relay):
    """The same holds for TCP connections that do not begin TLS: the oldest are closed."""
    connections = [connect_from("127.0.0.1", relay.target) for _ in range(30)]
    try:
        await eventually(lambda: sum(map(is_closed, connections)) >= 30 - LIMITS["max_unauthenticated_per_address"])
        assert not is_closed(connections[-1])
        await relay.pair()
    finally:
        for connection in connections:
            connection.close()


async def test_silent_connections_occupy_places(relay):
    """Connections that have sent nothing count as unauthenticated until they are closed, and hold nobody up."""
    connections = [connect_from("127.0.0.1", relay.target) for _ in range(3)]
    try:
        await eventually(lambda: relay.server.metrics().unauthenticated == 3)
        await relay.pair()
    finally:
        for connection in connections:
            connection.close()
    await eventually(lambda: relay.server.metrics().unauthenticated == 0)


async def test_what_has_proved_itself_is_never_dropped(relay):
    """Listeners, waiting senders and relayed connections survive any number of new connections of their address."""
    control = await relay.listen()
    sender, listener = await relay.pair(control)
    waiting = await relay.start_connect()
    offer = await relay.offer(control)
    async with AsyncExitStack() as stack:
        for _ in range(30):
            await stack.enter_async_context(await RawConnection.dial(relay.target))
        await sender.send(TEXT, b"still here")
        assert (TEXT, b"still here") == await listener.read_message()
        await relay.accept(offer)
        await finish_websocket(waiting)


async def test_addresses_have_budgets_of_their_own(relay):
    """Somebody who uses up the places of an address, or of all addresses, drops nobody of another one."""
    first = connect_from("127.0.0.2", relay.target)
    connections = [first]
    try:
        for host in ("127.0.0.3", "127.0.0.4"):
            connections += [connect_from(host, relay.target) for _ in range(30)]
        await eventually(lambda: sum(map(is_closed, connections)) == len(connections) - LIMITS["max_unauthenticated"])
        assert not is_closed(first)
    finally:
        for connection in connections:
            connection.close()


async def test_a_rendezvous_is_not_displaced(relay):
    """Connections from a listener's address have a budget of their own, however many others there are."""
    await relay.listen()
    rendezvous = connect_from("127.0.0.1", relay.target)
    connections: list[socket.socket] = []
    try:
        connections.extend(connect_from(f"127.0.0.{number}", relay.target) for number in range(2, 42))
        await eventually(lambda: sum(map(is_closed, connections)) == len(connections) - LIMITS["max_unauthenticated"])
        assert not is_closed(rendezvous)
    finally:
        for connection in (rendezvous, *connections):
            connection.close()


async def test_waiting_senders_are_limited(start_relay):
    """Too many senders of one hybrid connection get a 503; accepting and other hybrid connections are not affected."""
    relay = await start_relay(limits={"max_waiting_senders": 2})
    control = await relay.listen()
    waiting = [await relay.start_connect() for _ in range(2)]
    offers = [await relay.offer(control) for _ in range(2)]
    answer = await (await relay.start_connect()).answer()
    assert (503, True) == (answer.status, "too many waiting" in answer.reason)
    await relay.pair(await relay.listen("Mixed.Case"), sender={"path": "Mixed.Case"})
    for sender, offer in zip(waiting, offers, strict=True):
        await relay.accept(offer)
        await finish_websocket(sender)
    await relay.pair(control)


async def test_nothing_is_left_of_them(relay):
    """Whether they ended before TLS, during it, or after it: their places are free again."""
    for _ in range(5):
        connect_from("127.0.0.1", relay.target).close()
        broken = connect_from("127.0.0.1", relay.target)
        broken.sendall(b"GET / HTTP/1.1\r\n\r\n")
        broken.close()
        await (await RawConnection.dial(relay.target)).close()
    await eventually(lambda: relay.server.metrics().unauthenticated == 0)
