"""A TCP proxy whose connections can be cut, between the client of `relay-client demo --chaos` and its relay."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from relay_core.net.tasks import TaskSet, first_completed

READ_SIZE = 64 * 1024
LOCAL_HOST = "127.0.0.1"


class CutProxy:
    """Listens on a port on 127.0.0.1 and forwards connections to `host:port`.

    Args:
        host: Host name of the server.
        port: Port of the server.
        listen: Port to listen on; 0 for a free one.
    """

    def __init__(self, host: str, port: int, *, listen: int = 0) -> None:
        self.on_connection: Callable[[], None] = lambda: None
        """Called before each connection is forwarded."""
        self.live: set[Connection] = set()
        """The open connections."""
        self.port = listen
        """The port that the proxy listens on."""
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._tasks = TaskSet()

    async def __aenter__(self) -> CutProxy:
        self._server = await asyncio.start_server(self.accept, LOCAL_HOST, self.port, limit=READ_SIZE)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        await self._tasks.cancel_all()

    def cut(self) -> int:
        """Close every connection in both directions at once, and return the number of connections."""
        ended = list(self.live)
        for connection in ended:
            connection.end()
        return len(ended)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward a connection that was accepted."""
        self.on_connection()
        self._tasks.spawn(self._forward(reader, writer), name="chaos connection")

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(writer)
        self.live.add(connection)
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._target, limit=READ_SIZE)
            connection.writers.append(server_writer)
            if connection.ended:
                return
            for end in connection.writers:
                sock: socket.socket = end.get_extra_info("socket")
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with TaskSet() as lanes:
                up = lanes.spawn(self.pass_on(reader, server_writer, is_up=True), name="up")
                down = lanes.spawn(self.pass_on(server_reader, writer, is_up=False), name="down")
                if not await first_completed(up, down):  # one side has sent EOF; the other may still send
                    await asyncio.wait({up, down})
        except OSError:  # the server did not accept the connection
            writer.transport.abort()
        finally:
            self.live.discard(connection)
            for end in connection.writers:
                end.close()

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_up: bool) -> bool:  # noqa: ARG002 - for subclasses
        """Forward one direction until EOF; return True if an error has ended the connection."""
        try:
            while data := await reader.read(READ_SIZE):
                writer.write(data)
                await writer.drain()
            if not writer.is_closing():
                writer.write_eof()
        except OSError:
            return True
        return False


class Connection:
    """One accepted connection and, once established, the connection to the server."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.writers = [client]
        self.ended = False

    def end(self) -> None:
        """Close both connections at once."""
        self.ended = True
        for writer in self.writers:
            writer.transport.abort()
