"""The other direction: the editor listens on the laptop (`"listen"` in launch.json), and the job dials it.

    job: debugpy.connect(127.0.0.1:P) --> agent: P, any free port --> stream that the agent opens --> client --> editor

Some teams have such configurations from the azure-debug-relay package. The client asks for it with a stream to
`listen/<port>`, which both sides keep open for as long as it is wanted.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable

from relay_agent.prefetch.layer import PrefetchLayer
from relay_core.agent_api.metadata import StreamMetadata
from relay_core.agent_api.requests import Ready
from relay_core.errors import ConnectionLost
from relay_core.net.session.driver import SessionDriver
from relay_core.net.session.stream import SessionStream
from relay_core.net.streams.bridge import carry_bytes
from relay_core.net.streams.endpoint import LocalEndpoint, listen_local
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
        ask_ahead: Whether the client uses what is prefetched for its editor.

    Raises:
        RelayDebugError: the job cannot; the client has been told nothing yet.
        ConnectionLost: the client has gone.
    """
    async with TaskSet() as connections:

        def accepted(local: LocalEndpoint) -> None:
            carrying = _carry(logical_port, driver, local, ask_ahead=ask_ahead)
            connections.spawn(carrying, name=f"dial back {logical_port}")

        server = await listen_local(accepted, "127.0.0.1", 0)
        try:
            await connect(server.sockets[0].getsockname()[1])
            await stream.write(json.dumps(Ready().encode()).encode() + b"\n")
            while await stream.read():
                pass
        finally:
            server.close()


async def _carry(logical_port: int, driver: SessionDriver, local: LocalEndpoint, *, ask_ahead: bool) -> None:
    try:
        stream = driver.open(logical_port, StreamMetadata(prefetch=ask_ahead).encode())
        await carry_bytes(local, stream, [PrefetchLayer()] if ask_ahead else [])
    except ConnectionLost as lost:
        local.abort()
        logger.info("port %s: the editor's side ended: %s", logical_port, lost.reason or lost.sentence)
