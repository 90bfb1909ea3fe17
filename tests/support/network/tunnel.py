"""An agent and a client with a bad network between the client and a real relay, all in one loop."""

import asyncio
import contextlib
import hashlib
import os
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relay_agent.agent.agent import Agent
from relay_agent.agent.port_targets import PortTarget
from relay_agent.agent.targets import TargetProvider
from relay_client.agents.tunnels import Tunnels
from relay_client.ports.forwarder import Forwarder
from relay_client.ports.local_port import LocalPort
from relay_core.hyco.address import Endpoint
from relay_core.hyco.sas import Credential
from relay_core.net.session.agent import Grace
from relay_core.net.tasks import TaskSet
from relay_core.tunnel.limits import Settings
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.streams import Handler, echo, local_server
from tests.support.network.chaos import ChaosProxy
from tests.support.network.relay import HC, LocalRelay

QUICK = Settings(ping_after=0.3, dead_after=1.0, grace=30.0)
"""Timers for tests: a dead path is noticed within about a second."""


@dataclass
class TunnelPath:
    """A client port that leads through a bad network to a local server."""

    port: int
    chaos: ChaosProxy
    agent: Agent
    tunnels: Tunnels
    target_connections: list[int]


@contextlib.asynccontextmanager
async def running_agent(
    relay: LocalRelay,
    targets: TargetProvider | Mapping[int, PortTarget],
    *,
    tunnel_key: bytes | None,
    settings: Settings = QUICK,
    credential: Credential | None = None,
    kind: type[Agent] = Agent,
    **options: Any,
) -> AsyncIterator[Agent]:
    """Run an agent; the block begins when it listens, and the agent is stopped at its end."""
    up = asyncio.Event()
    agent = kind(
        relay.endpoint,
        credential or relay.listener,
        targets,
        tunnel_key=tunnel_key,
        tls=relay.tls,
        settings=settings,
        on_listening=up.set,
        **options,
    )
    async with TaskSet() as tasks:
        tasks.spawn(agent.run(), name="agent")
        await asyncio.wait_for(up.wait(), DEADLINE)
        yield agent


@contextlib.asynccontextmanager
async def forwarding(relay: LocalRelay, ports: Sequence[int | LocalPort], **options: Any) -> AsyncIterator[Tunnels]:
    """Run a client without a tunnel key that carries these local ports; `options` are those of Tunnels."""
    async with Tunnels(relay.endpoint, relay.sender, relay.tls, settings=QUICK, tunnel_key=None, **options) as tunnels:
        tunnels.keep_searching()
        async with Forwarder(tunnels, ports):
            yield tunnels


@contextlib.asynccontextmanager
async def tunnelled(relay: LocalRelay, handler: Handler = echo, **options: Any) -> AsyncIterator[TunnelPath]:
    """Carry a free port to a local server that runs `handler`, with options of `tunnelled_to`."""
    async with (
        local_server(handler) as (target_port, connections),
        tunnelled_to(relay, target_port, **options) as path,
    ):
        path.target_connections = connections
        yield path


@contextlib.asynccontextmanager
async def tunnelled_to(
    relay: LocalRelay,
    target_port: int,
    *,
    dap_only: bool = False,
    prefetch: bool = True,
    encrypted: bool = True,
    settings: Settings = QUICK,
    grace: Grace | None = None,
    seed: int = 0,
) -> AsyncIterator[TunnelPath]:
    """Carry a free port to another port of this machine."""
    key = os.urandom(32) if encrypted else None
    port = free_port()
    target = PortTarget(port, target_port, dap_only=dap_only)
    async with (
        running_agent(relay, {port: target}, tunnel_key=key, settings=settings, grace=grace) as agent,
        ChaosProxy("127.0.0.1", relay.server.port, seed=seed) as chaos,
        Tunnels(
            Endpoint("localhost", chaos.port, HC),
            relay.sender,
            relay.tls,
            tunnel_key=key,
            settings=settings,
            prefetch=prefetch,
        ) as tunnels,
        Forwarder(tunnels, [port]),
    ):
        yield TunnelPath(port, chaos, agent, tunnels, [])


class EchoClient:
    """Sends seeded bytes to an echo server and checks that all come back, once and in order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seed: int) -> None:
        self._reader = reader
        self._writer = writer
        self._random = random.Random(seed)
        self._sent = hashlib.sha256()
        self._received = hashlib.sha256()
        self.bytes = 0

    async def exchange(self, size: int) -> None:
        """Send so many bytes, and read as many back at the same time."""
        data = self._random.randbytes(size)
        self._sent.update(data)

        async def send() -> None:
            for start in range(0, size, 65536):
                self._writer.write(data[start : start + 65536])
                await self._writer.drain()

        async with TaskSet() as tasks:
            sending = tasks.spawn(send(), name="send")
            left = size
            while left:
                received = await self._reader.read(min(left, 65536))
                assert received, f"the connection ended with {left} bytes missing"
                self._received.update(received)
                left -= len(received)
            await sending
        self.bytes += size
        assert self._sent.digest() == self._received.digest()


@contextlib.asynccontextmanager
async def echo_client(port: int, seed: int = 1) -> AsyncIterator[EchoClient]:
    """Connect to an echo server on 127.0.0.1."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield EchoClient(reader, writer, seed)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
