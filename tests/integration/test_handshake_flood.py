"""Facts about an agent and somebody who has a Send key and no tunnel key, over real sockets."""

import asyncio
import contextlib

import pytest

from relay_agent.agent import handshake_admission
from relay_agent.agent.port_targets import PortTarget
from relay_core.compat import timeout
from relay_core.net import connect
from relay_core.net.session import agent as session_agent
from relay_core.net.session.client import ClientTunnel
from relay_core.net.session.tunnel_certificates import TunnelIdentity
from relay_core.net.tasks import TaskSet
from relay_core.net.websocket.connection import WebSocket
from relay_core.tunnel.handshake import TUNNEL_HEADER, TunnelHeader
from relay_core.tunnel.outcomes import Role
from tests.integration.relay_server.waiting import eventually
from tests.support.machine.deadline import DEADLINE
from tests.support.network.relay import LocalRelay
from tests.support.network.tunnel import QUICK, running_agent

KEY = b"k" * 32


async def dial(relay: LocalRelay, name: str) -> WebSocket:
    """Connect as a sender; returns when the agent has accepted."""
    return await connect(
        relay.endpoint, relay.sender, tls=relay.tls, headers={TUNNEL_HEADER: TunnelHeader(name).encode()}
    )


async def stay_silent(relay: LocalRelay, name: str) -> None:
    """Connect, and send nothing until the agent has had enough."""
    with contextlib.suppress(Exception):  # whatever the agent or relay answers: this one does not care
        websocket = await dial(relay, name)
        try:
            await websocket.receive()
        finally:
            websocket.abort()


async def test_silent_senders_hold_few_places(relay: LocalRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent accepts a few senders at a time until they have shown their key, and a client gets in between them."""
    monkeypatch.setattr(handshake_admission, "MAX_HANDSHAKES", 3)
    monkeypatch.setattr(handshake_admission, "BUSY_TIMEOUT", 1.0)
    monkeypatch.setattr(session_agent, "FIRST_BYTES_TIMEOUT", 1.0)
    most = 0
    async with running_agent(relay, {1: PortTarget(1, 1)}, tunnel_key=KEY), TaskSet() as flood:
        for number in range(15):
            flood.spawn(stay_silent(relay, f"stranger {number}"), name=f"stranger {number}")
        await eventually(lambda: relay.server.metrics().active_senders == 3)
        await eventually(lambda: relay.server.metrics().pending_senders >= 9)
        client = asyncio.ensure_future(dial(relay, "alice"))
        while not client.done():
            most = max(most, relay.server.metrics().active_senders)
            await asyncio.sleep(0.01)
        attached, transport = await ClientTunnel.begin(
            await client, TunnelIdentity(Role.CLIENT, KEY), settings=QUICK, info={"client": "alice"}
        )
        assert attached.new
        assert most < 6  # the relay notices a moment later that a place was given back
        transport.abort()


async def test_a_silent_sender_is_dropped_early(relay: LocalRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who sends nothing after it was accepted loses its connection long before a handshake's time limit."""
    monkeypatch.setattr(session_agent, "FIRST_BYTES_TIMEOUT", 0.1)
    monkeypatch.setattr(session_agent, "REFUSAL_TIMEOUT", 0.1)
    monkeypatch.setattr(handshake_admission, "HANDSHAKE_TIMEOUT", 3600.0)
    async with running_agent(relay, {1: PortTarget(1, 1)}, tunnel_key=KEY):
        async with timeout(DEADLINE):
            await stay_silent(relay, "stranger")
        await eventually(lambda: relay.server.metrics().active_senders == 0)
