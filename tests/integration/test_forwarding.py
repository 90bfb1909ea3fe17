"""Facts about agent and client together, through a real relay, to a real local server."""

import asyncio
import contextlib
import functools
import hashlib
import logging
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from relay_agent.agent.agent import Agent
from relay_agent.agent.port_targets import PortTarget
from relay_client.agents.tunnels import Tunnels
from relay_client.ports import waiting_connection
from relay_client.ports.forwarder import Forwarder
from relay_client.ports.local_port import debugger_ports
from relay_core.auth.sas_credentials import SasKeyCredential
from relay_core.errors import LocalPortInUse, Rejected, Unauthorized
from relay_core.hyco.address import Endpoint
from relay_core.hyco.sas import Token
from relay_core.net import connect
from relay_core.net.session.driver import SessionDriver
from relay_core.net.session.stream import SessionStream
from relay_core.tunnel.events import StreamOpened
from tests.support.machine import secrets
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.streams import Handler, echo, local_server
from tests.support.network import fleet
from tests.support.network.relay import LocalRelay, recycle_listeners
from tests.support.network.tunnel import echo_client, running_agent

TUNNEL_KEY = os.urandom(32)


@dataclass
class Path:
    """A client port that leads to a local server."""

    port: int
    target_connections: list[int]


agent_running = functools.partial(running_agent, tunnel_key=TUNNEL_KEY)


def client_tunnels(relay: LocalRelay) -> Tunnels:
    return Tunnels(relay.endpoint, relay.sender, relay.tls, tunnel_key=TUNNEL_KEY)


@contextlib.asynccontextmanager
async def forwarded(relay: LocalRelay, handler: Handler = echo, *, dap_only: bool = False) -> AsyncIterator[Path]:
    port = free_port()
    async with (
        local_server(handler) as (target_port, connections),
        agent_running(relay, {port: PortTarget(port, target_port, dap_only=dap_only)}),
        client_tunnels(relay) as tunnels,
        Forwarder(tunnels, [port]),
    ):
        yield Path(port, connections)


async def send_and_hash(port: int, data: bytes) -> str:
    """Send `data`, read as much back, and return its hash."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def send() -> None:
        for start in range(0, len(data), 65536):
            writer.write(data[start : start + 65536])
            await writer.drain()

    sending = asyncio.ensure_future(send())
    digest = hashlib.sha256(await reader.readexactly(len(data))).hexdigest()
    await sending
    writer.close()
    await writer.wait_closed()
    return digest


async def test_ten_megabytes_each_way_arrive_intact(relay: LocalRelay) -> None:
    """10 MB of random bytes go through agent and client and come back unchanged."""
    data = os.urandom(10_000_000)
    async with forwarded(relay) as path:
        assert hashlib.sha256(data).hexdigest() == await send_and_hash(path.port, data)


async def test_a_debugger_stays_attached_when_the_agents_key_is_revoked(
    relay: LocalRelay, caplog: pytest.LogCaptureFixture
) -> None:
    """An agent that may no longer listen serves the clients that are connected, and ends when they have left."""
    port, up, failures = free_port(), asyncio.Event(), asyncio.Queue()
    credential = RevocableKey("listen", relay.listen_key)
    async with local_server(echo) as (target_port, _), contextlib.AsyncExitStack() as client:
        agent = Agent(
            relay.endpoint,
            credential,
            {port: PortTarget(port, target_port)},
            tunnel_key=TUNNEL_KEY,
            tls=relay.tls,
            on_listening=up.set,
            on_failure=failures.put_nowait,
        )
        running = asyncio.ensure_future(agent.run())
        await asyncio.wait_for(up.wait(), DEADLINE)
        tunnels = await client.enter_async_context(client_tunnels(relay))
        await client.enter_async_context(Forwarder(tunnels, [port]))
        async with echo_client(port) as editor:
            await editor.exchange(1000)
            credential.revoked = True
            recycle_listeners(relay.server)
            assert isinstance(await asyncio.wait_for(failures.get(), DEADLINE), Unauthorized)
            await editor.exchange(1000)
            assert not running.done()
        await client.aclose()
        with pytest.raises(Unauthorized):
            await asyncio.wait_for(running, DEADLINE)
    assert "no longer listening" in caplog.text


class RevocableKey(SasKeyCredential):
    """A key that the relay refuses once it is revoked."""

    revoked = False

    async def token(self, endpoint: Endpoint) -> Token:
        if self.revoked:
            return await SasKeyCredential("listen", secrets.new_key()).token(endpoint)
        return await super().token(endpoint)


async def test_fifty_connections_keep_their_own_bytes(relay: LocalRelay) -> None:
    """50 connections at once do not mix."""
    payloads = [os.urandom(20_000 + 1000 * n) for n in range(50)]
    async with forwarded(relay) as path:
        digests = await asyncio.gather(*(send_and_hash(path.port, data) for data in payloads))
    assert [hashlib.sha256(data).hexdigest() for data in payloads] == digests


async def test_the_targets_end_reaches_the_client(relay: LocalRelay) -> None:
    """When the target ends its connection, the local program reads what came before, then EOF."""

    async def say_and_leave(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"bye")

    async with forwarded(relay, say_and_leave) as path:
        reader, writer = await asyncio.open_connection("127.0.0.1", path.port)
        assert await reader.read() == b"bye"
        writer.close()
        await writer.wait_closed()


async def test_the_clients_end_reaches_the_target(relay: LocalRelay) -> None:
    """When the local program ends its connection, so does the target's."""
    ended = asyncio.Event()

    async def note_end(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()
        ended.set()

    async with forwarded(relay, note_end) as path:
        _, writer = await asyncio.open_connection("127.0.0.1", path.port)
        writer.write(b"x")
        writer.close()
        await writer.wait_closed()
        await asyncio.wait_for(ended.wait(), DEADLINE)


async def test_an_early_editor_is_held_until_the_agent_comes(relay: LocalRelay) -> None:
    """What a program sends before there is an agent is delivered once there is one."""
    port = free_port()
    async with (
        local_server(echo) as (target_port, _),
        client_tunnels(relay) as tunnels,
        Forwarder(tunnels, [port]),
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"early")
        while not relay.server.metrics().refused:  # the client has asked in vain at least once
            await asyncio.sleep(0.01)
        async with agent_running(relay, {port: PortTarget(port, target_port)}):
            assert await reader.readexactly(5) == b"early"
            writer.close()
            await writer.wait_closed()


async def test_a_port_that_no_agent_serves_is_explained(relay: LocalRelay, caplog: pytest.LogCaptureFixture) -> None:
    """The client logs which ports the agent does serve, and keeps waiting."""
    port = free_port()
    async with (
        agent_running(relay, {5999: PortTarget(5999, 1)}),
        client_tunnels(relay) as tunnels,
        Forwarder(tunnels, [port]),
    ):
        with caplog.at_level(logging.WARNING, "relay_client"):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            while f"serves port {port}; " not in caplog.text or "serves port 5999" not in caplog.text:
                await asyncio.sleep(0.01)
            writer.close()
            await writer.wait_closed()


async def test_strangers_do_not_disturb_a_debugger(relay: LocalRelay) -> None:
    """Connects that are dropped at once, HTTP and TLS bytes never reach a debug adapter; a debugger does."""

    async def adapter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"greeting")
        await echo(reader, writer)

    async with forwarded(relay, adapter, dap_only=True) as path:
        for first in [b""] * 20 + [b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01\x02\x00"]:
            reader, writer = await asyncio.open_connection("127.0.0.1", path.port)
            writer.write(first)
            if first:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        reader, writer = await asyncio.open_connection("127.0.0.1", path.port)
        writer.write(b"Content-Length: 2\r\n\r\n{}")
        assert await reader.readexactly(8) == b"greeting"
        writer.close()
        await writer.wait_closed()
        assert [1] == path.target_connections


class CountingAgent(Agent):
    """An agent that counts the streams that clients open."""

    opened = 0

    def _open(self, driver: SessionDriver, stream: SessionStream, event: StreamOpened) -> None:
        self.opened += 1
        super()._open(driver, stream, event)


@pytest.mark.parametrize("first", [b"", b"Content-", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00"])
async def test_only_a_debugger_holds_a_process(
    relay: LocalRelay, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, first: bytes
) -> None:
    """A program that sends no DAP request is disconnected without a stream to the agent, so it holds no rank."""
    monkeypatch.setattr(waiting_connection, "FIRST_BYTES_TIMEOUT", 0.1)
    port = free_port()
    async with (
        fleet.process(port, "a", pid=1, rank=0, dap_only=True) as rank,
        fleet.agent(relay, fleet.Node(rank), CountingAgent) as running,
        fleet.tunnels(relay) as tunnels,
        Forwarder(tunnels, [port]),
    ):
        assert isinstance(running, CountingAgent)
        await tunnels.discover()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(first)
        with contextlib.suppress(ConnectionError):
            assert b"" == await asyncio.wait_for(reader.read(), DEADLINE)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        assert 0 == running.opened
        assert waiting_connection.NOT_DAP in caplog.text
        monkeypatch.setattr(waiting_connection, "FIRST_BYTES_TIMEOUT", DEADLINE)
        assert "a" == await fleet.who_serves(port)
        assert 1 == running.opened


async def test_a_dead_target_leaves_the_others_alone(relay: LocalRelay) -> None:
    """A target where nothing listens ends its own connections; another target of the same agent works."""
    good, dead = free_port(), free_port()
    async with (
        local_server(echo) as (target_port, _),
        agent_running(relay, {good: PortTarget(good, target_port), dead: PortTarget(dead, free_port())}),
        client_tunnels(relay) as tunnels,
        Forwarder(tunnels, [good, dead]),
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", dead)
        writer.write(b"x")
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        assert hashlib.sha256(b"fine").hexdigest() == await send_and_hash(good, b"fine")


async def test_a_sender_without_a_tunnel_is_refused(relay: LocalRelay) -> None:
    """A plain hybrid connection client does not get past the agent, and learns what it accepts."""
    async with forwarded(relay) as path:
        with pytest.raises(Rejected, match="accepts relay-client connections only") as caught:
            await connect(relay.endpoint, relay.sender, tls=relay.tls)
        assert caught.value.status == 426
        assert [] == path.target_connections


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="this machine has no ::1")


@needs_ipv6
async def test_an_editor_that_prefers_ipv6(relay: LocalRelay) -> None:
    """`localhost` may be ::1, where a port leads to the same rank as on 127.0.0.1."""
    async with forwarded(relay) as path:
        reader, writer = await asyncio.open_connection("::1", path.port)
        writer.write(b"hello\n")
        assert b"hello\n" == await asyncio.wait_for(reader.readline(), DEADLINE)
        writer.close()
        await writer.wait_closed()


@needs_ipv6
async def test_a_port_that_is_in_use_on_ipv6_only(relay: LocalRelay, caplog: pytest.LogCaptureFixture) -> None:
    """Another program on ::1 would receive what is sent to `localhost`, so a log line names the address to use."""
    port = free_port()
    with socket.create_server(("::1", port), family=socket.AF_INET6):
        async with client_tunnels(relay) as tunnels, Forwarder(tunnels, [port]) as forwarder:
            assert [port] == forwarder.opened
    assert f"another program uses port {port} on ::1: in the editor's settings, use 127.0.0.1" in caplog.text


async def test_a_port_in_use_opens_none(relay: LocalRelay) -> None:
    """If one of several ports is taken, the error names it and the others are free again."""
    free = free_port()
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        taken = holder.getsockname()[1]
        with pytest.raises(LocalPortInUse, match=f"port {taken} on this machine is in use"):
            async with client_tunnels(relay) as tunnels, Forwarder(tunnels, [free, taken]):
                pass
    with socket.socket() as again:
        again.bind(("127.0.0.1", free))


async def test_a_cancelled_attempt_leaves_its_port_free(relay: LocalRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port can be opened after an attempt to open it was cancelled."""
    (local,), begun = debugger_ports([free_port()]), asyncio.Event()

    async def listen(*_arguments: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with client_tunnels(relay) as tunnels, Forwarder(tunnels, []) as forwarder:
        with monkeypatch.context() as patched:
            patched.setattr("relay_client.ports.forwarder.LocalServer.open", listen)
            opening = asyncio.create_task(forwarder.open(local))
            await begun.wait()
            opening.cancel()
            await asyncio.wait([opening])
        await forwarder.open(local)
        assert [local.port] == forwarder.opened


async def test_a_slow_reader_slows_the_sender(relay: LocalRelay) -> None:
    """Bytes that nobody reads are not piled up: the sender is stopped after a bounded amount."""

    async def never_reads(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with forwarded(relay, never_reads) as path:
        _, writer = await asyncio.open_connection("127.0.0.1", path.port)
        sent = 0
        block = bytes(1 << 20)
        with contextlib.suppress(asyncio.TimeoutError):
            while sent < 200 << 20:
                writer.write(block)
                await asyncio.wait_for(writer.drain(), 2)
                sent += len(block)
        assert sent < 64 << 20
        writer.transport.abort()
