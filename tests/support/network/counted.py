"""A client whose connections to the relay are counted in bytes, with TLS and WebSocket frames."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from relay_client.agents.tunnels import Tunnels
from relay_core.tunnel.limits import Settings
from tests.support.network.relay import LocalRelay

__all__ = ["Counter", "counted_client"]


class Counter:
    """A port that forwards to another one, and counts what it carries in both directions."""

    def __init__(self, port: int) -> None:
        self.connections: list[int] = []
        """Bytes of each connection so far, in both directions."""
        self.open: set[int] = set()
        """Numbers of the connections that have not been closed."""
        self._port = port

    @property
    def carried(self) -> int:
        """Bytes of all connections."""
        return sum(self.connections)

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        answers, requests = await asyncio.open_connection("127.0.0.1", self._port)
        number = len(self.connections)
        self.connections.append(0)
        self.open.add(number)
        both = self._pass(number, reader, requests), self._pass(number, answers, writer)
        try:
            await asyncio.gather(*both, return_exceptions=True)
        finally:
            self.open.discard(number)

    async def _pass(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                self.connections[number] += len(data)
                writer.write(data)
        finally:
            writer.close()


@asynccontextmanager
async def counted_client(relay: LocalRelay, settings: Settings) -> AsyncIterator[tuple[Tunnels, Counter]]:
    """Run a client that reaches the relay through a counter."""
    counter = Counter(relay.server.port)
    server = await asyncio.start_server(counter.forward, "127.0.0.1")
    endpoint = dataclasses.replace(relay.endpoint, port=server.sockets[0].getsockname()[1])
    async with server, Tunnels(endpoint, relay.sender, relay.tls, settings=settings, tunnel_key=None) as client:
        yield client, counter
