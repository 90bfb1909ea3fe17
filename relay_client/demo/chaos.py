"""A TCP proxy whose connections can be cut, between the client of `relay-client demo --chaos` and its relay."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from relay_core.net.tasks import TaskSet, run_together

READ_SIZE = 64 * 1024


class CutProxy:
    """Listens on a free port on 127.0.0.1 and forwards connections to `host:port`.

    Args:
        host: Host name of the server.
        port: Port of the server.
    """

    def __init__(self, host: str, port: int) -> None:
        self.on_connection: Callable[[], None] = lambda: None
        """Called before each connection is forwarded."""
        self.port = 0
        """The port that the proxy listens on, once entered."""
        self._target = (host, port)
        self._ends: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        """Client and server of each connection."""
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> CutProxy:
        tasks = await self._stack.enter_async_context(TaskSet())

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.on_connection()
            tasks.spawn(self._forward(reader, writer), name="chaos connection")

        server = await asyncio.start_server(accept, "127.0.0.1")
        self._stack.callback(self.cut)
        self._stack.callback(server.close)
        self.port = server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self._stack.aclose()

    def cut(self) -> int:
        """Close every connection in both directions at once, and return the number of connections."""
        for end in (end for ends in self._ends for end in ends):
            end.transport.abort()
        return len(self._ends)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):  # also if the server accepts no connection
            server_reader, server_writer = await asyncio.open_connection(*self._target)
            ends = writer, server_writer
            with contextlib.closing(server_writer):
                self._ends.add(ends)
                try:
                    await run_together(_pass_on(reader, server_writer), _pass_on(server_reader, writer))
                finally:
                    self._ends.discard(ends)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forward one direction until EOF."""
    while data := await reader.read(READ_SIZE):
        writer.write(data)
        await writer.drain()
    if not writer.is_closing():
        writer.write_eof()
