"""The other direction: the editor listens on the laptop (`"listen"` in launch.json), and the job dials it.

    job: debugpy.connect(127.0.0.1:P) --> agent: P, any free port --> stream that the agent opens --> client --> editor

Some teams have such configurations from the azure-debug-relay package. The client asks for it with a stream to
`listen/<port>`, which both sides keep open for as long as it is wanted.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable

from relay_agent.prefetch.stream import AskAhead
from relay_core.agent_api.metadata import StreamMetadata
from relay_core.agent_api.requests import Ready
from relay_core.errors import ConnectionLost
from relay_core.net.session.driver import SessionDriver
from relay_core.net.session.stream import SessionStream
from relay_core.net.streams.interposed import InterposedStream
from relay_core.net.streams.pump import READ_SIZE, Traffic, pump, set_nodelay
from relay_core.net.streams.stream import DirectStream
from relay_core.net.tasks import TaskSet

__all__ = ["dial_back"]

logger = logging.getLogger(__name__)


async def dial_back(
    logical_port: int,
    connect: Callable[[int], Awaitable[object]],
    driver: SessionDriver,
    stream: SessionStream,
    *,
    ask_ahead: bool,
) -> None:
    """Have the job connect to the client's editor until the client ends `stream`.

    Args:
        logical_port: What the client knows the job by.
        connect: Makes the job's debugger connect to a port of this machine.
        driver: The client's session.
        stream: The client's wish.
        ask_ahead: Whether the client can do with answers to what its editor has not asked yet.

    Raises:
        RelayDebugError: the job cannot; the client has been told nothing yet.
        ConnectionLost: the client has gone.
    """
    async with TaskSet() as connections:

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            carrying = _carry(logical_port, driver, reader, writer, ask_ahead=ask_ahead)
            connections.spawn(carrying, name=f"dial back {logical_port}")

        server = await asyncio.start_server(accepted, "127.0.0.1", 0, limit=READ_SIZE)
        try:
            await connect(server.sockets[0].getsockname()[1])
            await stream.write(json.dumps(Ready().encode()).encode() + b"\n")
            while await stream.read():
                pass
        finally:
            server.close()


async def _carry(
    logical_port: int,
    driver: SessionDriver,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    *,
    ask_ahead: bool,
) -> None:
    set_nodelay(writer)
    traffic = Traffic()
    try:
        stream: DirectStream = driver.open(logical_port, StreamMetadata(prefetch=ask_ahead).encode())
        if ask_ahead:
            stream = interposed = InterposedStream(stream, AskAhead())
            interposed.inject_into(writer)
        await pump(reader, writer, stream, traffic)
    except ConnectionLost as lost:
        logger.info("port %s: the editor's side ended: %s", logical_port, lost.reason or lost.sentence)
