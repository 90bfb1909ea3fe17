"""Whatever may answer in a relay's place for a while: a captive portal, an inspecting proxy, an overloaded gateway."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from relay_core.hyco.address import Endpoint
from relay_server.config.certificates import prepare, server_context
from relay_server.config.model import TlsSettings
from tests.support.machine.streams import carry_to, local_server
from tests.support.network.relay import HC, LocalRelay


@contextlib.asynccontextmanager
async def behind_a_switch(relay: LocalRelay) -> AsyncIterator[tuple[Endpoint, Callable[[int], None]]]:
    """A port that leads to the relay; the function lets new connections go to another port of this machine."""
    backend = relay.server.port

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await carry_to(backend, reader, writer)

    def switch(port: int) -> None:
        nonlocal backend
        backend = port

    async with local_server(carry) as (port, _):
        yield Endpoint("localhost", port, HC), switch


@contextlib.asynccontextmanager
async def impostor(certificates: Path, answer: bytes, *names: str, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """Give every TLS request the same answer, with a certificate of a directory, for localhost or these names."""
    context = server_context(prepare(TlsSettings(directory=certificates), list(names) or ["localhost"]))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, host, 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]
