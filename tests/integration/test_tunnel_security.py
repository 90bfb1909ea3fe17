"""Facts about who gets into a tunnel and who does not, over real sockets; the live session never notices."""

import asyncio
import contextlib
import logging
import os
from dataclasses import replace

import pytest

from relay_agent.agent.port_targets import PortTarget
from relay_client.agents.tunnels import Tunnels
from relay_core.errors import ConnectionLost, RelayDebugError
from relay_core.net import HybridConnectionListener, connect
from relay_core.net.session.client import ClientTunnel
from relay_core.net.session.secure_channel import TunnelKeyMissing, WrongTunnelKey
from relay_core.net.session.transport import SessionRefused, TooManySessions, Transport, perform_handshake
from relay_core.net.session.tunnel_certificates import TunnelIdentity
from relay_core.net.tasks import TaskSet
from relay_core.net.websocket.connection import WebSocket
from relay_core.tunnel.handshake import TUNNEL_HEADER, HelloHandshake, TunnelHeader
from relay_core.tunnel.messages import Resume
from relay_core.tunnel.outcomes import Refusal, Role
from tests.support.machine.deadline import DEADLINE
from tests.support.network.relay import LocalRelay
from tests.support.network.tunnel import QUICK, TunnelPath, echo_client, running_agent, tunnelled


async def dial(relay: LocalRelay) -> WebSocket:
    """Connect as a client that knows the Send key."""
    return await connect(
        relay.endpoint, relay.sender, tls=relay.tls, headers={TUNNEL_HEADER: TunnelHeader("stranger").encode()}
    )


async def begin(relay: LocalRelay, key: bytes | None) -> None:
    identity = TunnelIdentity(Role.CLIENT, key) if key else None
    _, transport = await ClientTunnel.begin(await dial(relay), identity, settings=QUICK, info={})
    await transport.send([bytes(20)])  # a TLS 1.3 server may judge the client's certificate only now
    while True:
        await transport.receive()


@pytest.mark.parametrize(
    ("client_key", "agent_key", "error", "sentence"),
    [
        (b"c" * 32, b"a" * 32, WrongTunnelKey, "different tunnel keys"),
        (None, b"a" * 32, TunnelKeyMissing, "the agent has a tunnel key but the client has none"),
        (b"c" * 32, None, TunnelKeyMissing, "the client has a tunnel key but the agent has none"),
    ],
)
async def test_keys_that_do_not_match_are_explained(
    relay: LocalRelay, client_key: bytes | None, agent_key: bytes | None, error: type[RelayDebugError], sentence: str
) -> None:
    """Different keys, and a key on one side only, end with a sentence that names the side without a key, if any."""
    async with running_agent(relay, {1: PortTarget(1, 1)}, tunnel_key=agent_key):
        with pytest.raises(error, match=sentence):
            await asyncio.wait_for(begin(relay, client_key), DEADLINE)


async def test_a_search_with_another_tunnel_key_is_logged_once(
    relay: LocalRelay, caplog: pytest.LogCaptureFixture
) -> None:
    """One `targets` with a wrong tunnel key, which makes several attempts, is one line in the job's log."""
    caplog.set_level(logging.INFO, "relay_agent")
    client = Tunnels(relay.endpoint, relay.sender, relay.tls, tunnel_key=b"c" * 32, settings=QUICK)
    async with running_agent(relay, {1: PortTarget(1, 1)}, tunnel_key=b"a" * 32), client:
        with pytest.raises(WrongTunnelKey):
            await client.discover_all()
    refused = [line for line in caplog.messages if line.startswith("cannot serve a client")]
    assert 1 == len(refused), refused
    assert "tunnel keys" in refused[0]


async def test_a_listener_that_closes_each_connection(relay: LocalRelay, caplog: pytest.LogCaptureFixture) -> None:
    """Warning and error state who closed what, and the search ends."""
    up = asyncio.Event()

    async def close_all(listener: HybridConnectionListener) -> None:
        async for offer in listener:
            with contextlib.suppress(RelayDebugError):
                (await offer.accept()).abort()

    client = Tunnels(relay.endpoint, relay.sender, relay.tls, tunnel_key=b"c" * 32, settings=QUICK)
    async with (
        HybridConnectionListener(
            relay.endpoint, relay.listener, tls=relay.tls, on_state=lambda _state, _error: up.set()
        ) as listener,
        TaskSet() as tasks,
        client,
    ):
        tasks.spawn(close_all(listener), name="close all")
        await asyncio.wait_for(up.wait(), DEADLINE)
        with pytest.raises(ConnectionLost, match="the relay or the agent closed the connection during the handshake"):
            await asyncio.wait_for(client.discover_all(), DEADLINE)
    text = "because a listener on 'myhc' cannot be used: the relay or the agent closed the connection during the "
    assert text in caplog.text


async def test_a_stranger_with_a_send_key_leaves_the_session_alone(
    relay: LocalRelay, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the tunnel key nobody gets in, the agent's log has the reason, and the live session continues."""
    caplog.set_level(logging.INFO)
    async with tunnelled(relay) as path, echo_client(path.port) as client:
        await client.exchange(1000)
        for key in (os.urandom(32), None):
            with pytest.raises(RelayDebugError):
                await asyncio.wait_for(begin(relay, key), DEADLINE)
        await client.exchange(100_000)
        assert path.chaos.connections == 1
    assert "different tunnel keys" in caplog.text
    assert "the agent has a tunnel key but the client has none" in caplog.text


async def try_resume(relay: LocalRelay, request: bytes) -> Refusal:
    """Send a RESUME as it is over a fresh transport in the clear, and return the agent's refusal."""
    transport = Transport(await dial(relay), None)
    handshake = HelloHandshake(QUICK)
    handshake.request = request
    with pytest.raises(SessionRefused) as caught:
        await perform_handshake(transport, handshake)
    return caught.value.refusal


async def test_a_guessed_session_is_refused(relay: LocalRelay) -> None:
    """A session id that the agent does not know gets nothing."""
    guess = Resume.make(os.urandom(32), os.urandom(16), epoch=99, received=0, nonce=os.urandom(16))
    async with tunnelled(relay, encrypted=False) as path, echo_client(path.port) as client:
        await client.exchange(1000)
        assert Refusal.UNKNOWN_SESSION is await try_resume(relay, guess.encode())
        await still_untouched(path, client)


async def test_a_stolen_session_id_is_not_enough(relay: LocalRelay) -> None:
    """Whoever knows a session's id and not its secret is refused."""
    async with tunnelled(relay, encrypted=False) as path, echo_client(path.port) as client:
        await client.exchange(1000)
        (session,) = path.agent._tunnels.table
        stolen = Resume.make(os.urandom(32), session.id, epoch=99, received=0, nonce=os.urandom(16))
        assert Refusal.BAD_PROOF is await try_resume(relay, stolen.encode())
        await still_untouched(path, client)


async def test_a_replayed_resume_is_refused(relay: LocalRelay) -> None:
    """A RESUME that was good once is stale the second time."""
    async with tunnelled(relay, encrypted=False) as path, echo_client(path.port) as client:
        await client.exchange(1000)
        (session,) = path.agent._tunnels.table
        recorded = Resume.make(session.secret, session.id, epoch=session.epoch, received=0, nonce=os.urandom(16))
        assert Refusal.STALE_EPOCH is await try_resume(relay, recorded.encode())
        await still_untouched(path, client)


async def still_untouched(path: TunnelPath, client) -> None:
    """Assert that the live session works on its first transport."""
    await client.exchange(100_000)
    assert path.chaos.connections == 1


async def test_a_port_that_is_not_offered_is_refused(relay: LocalRelay, caplog: pytest.LogCaptureFixture) -> None:
    """A client cannot reach a port that the agent does not offer, and its other connections continue."""
    async with tunnelled(relay) as path, echo_client(path.port) as client:
        await client.exchange(1000)
        (tunnel,) = path.tunnels._tunnels.values()
        for target, name in ((22, "port 22"), (path.port + 1, f"port {path.port + 1}"), ("ssh", "'ssh'")):
            stream = tunnel.driver.open(target)
            with pytest.raises(ConnectionLost, match=f"this agent does not serve {name}"):
                await stream.read()
        await still_untouched(path, client)
    assert "refused a connection to port 22: this agent does not serve it" in caplog.text


async def test_garbage_costs_its_own_transport_only(relay: LocalRelay) -> None:
    """Random bytes, huge length fields and text on a fresh transport hurt nobody else."""
    async with tunnelled(relay, encrypted=False) as path, echo_client(path.port) as client:
        await client.exchange(1000)
        for message in (
            os.urandom(1000),
            b"\x00" * 20,
            b"\xff" * 20,
            b"\x10\x00\x00\x00" * 100,
            "text",
            b"GET / HTTP/1.1",
        ):
            websocket = await dial(relay)
            await websocket.send(message)
            with pytest.raises(ConnectionLost):
                while True:
                    await asyncio.wait_for(websocket.receive(), DEADLINE)
        await still_untouched(path, client)


async def test_killed_clients_keep_nobody_out(relay: LocalRelay, caplog: pytest.LogCaptureFixture) -> None:
    """Sessions whose clients are gone make room at the limit; if all clients are there, a new one waits for a place."""
    caplog.set_level(logging.INFO)
    settings = replace(QUICK, max_sessions=2)

    def client() -> Tunnels:
        return Tunnels(relay.endpoint, relay.sender, relay.tls, settings=QUICK)

    async with running_agent(relay, {1: PortTarget(1, 1)}, tunnel_key=None, settings=settings) as agent:
        for _ in range(2):
            _, transport = await ClientTunnel.begin(await dial(relay), None, settings=QUICK, info={})
            transport.abort()
        while agent._tunnels.in_contact:
            await asyncio.sleep(0.01)
        async with client() as first, contextlib.AsyncExitStack() as stack:
            await first.discover_all()
            second = await stack.enter_async_context(client())
            await second.discover_all()
            async with client() as third:
                with pytest.raises(TooManySessions, match="the agent has reached its limit of 2 sessions"):
                    await third.discover_all(waits=False)
                waiting = asyncio.create_task(third.discover_all())
                waits = "waiting, because a listener on 'myhc' cannot be used: the agent refused the session"
                while waits not in caplog.text:
                    await asyncio.sleep(0.01)
                await stack.aclose()  # the second client leaves
                await asyncio.wait_for(waiting, DEADLINE)
                assert 1 == len(third.roster)
    assert 1 == caplog.text.count(waits)
