"""A connection between a process and the agent of its node."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def connection() -> AsyncIterator[tuple[asyncio.StreamWriter, socket.socket]]:
    """The agent's end of a connection to a process, and the process's end."""
    near, far = socket.socketpair()
    _, writer = await asyncio.open_connection(sock=near)
    try:
        yield writer, far
    finally:
        writer.close()
        await writer.wait_closed()
        far.close()
