"""A pair of connected in-memory `ByteStream`s, and real local servers to pump to."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from relay_core.errors import ConnectionLost
from relay_core.net.streams.stream import ByteStream
from relay_core.net.tasks import TaskSet

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class MemoryStream:
    """One end of a pair; half-close works, an abort is a ConnectionLost at the other end."""

    def __init__(self) -> None:
        self.peer: MemoryStream | None = None
        self.aborted = False
        self.closed = False
        self._incoming: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=4)
        self._ended = False

    async def read(self) -> bytes:
        if self._ended:
            return b""
        data = await self._incoming.get()
        if data is None:
            raise ConnectionLost("the other end was aborted")
        self._ended = data == b""
        return data

    async def write(self, data: bytes) -> None:
        if data:
            await self.peer._incoming.put(data)

    def write_some(self, data: bytes) -> int:
        return 0

    def offer_to(self, take: Callable[[bytes], bool]) -> None:
        pass

    async def write_eof(self) -> None:
        await self.peer._incoming.put(b"")

    async def close(self) -> None:
        self.closed = True

    def abort(self, reason: str = "") -> None:
        if not self.aborted:
            self.aborted = True
            peer = self.peer._incoming
            while peer.full():
                peer.get_nowait()
            peer.put_nowait(None)


def stream_pair() -> tuple[MemoryStream, MemoryStream]:
    left, right = MemoryStream(), MemoryStream()
    left.peer, right.peer = right, left
    return left, right


@contextlib.asynccontextmanager
async def local_server(handler: Handler) -> AsyncIterator[tuple[int, list[int]]]:
    """Serve `handler` on a free port of 127.0.0.1; yields the port and a list that grows with each connection."""
    connections: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError):
                await handler(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async with TaskSet() as tasks:

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.append(len(connections) + 1)
            tasks.spawn(serve(reader, writer), name="local server connection")

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1], connections
        finally:
            server.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send back whatever comes, until EOF."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def read_all(stream: ByteStream) -> bytes:
    """Return everything up to EOF."""
    received = bytearray()
    while data := await stream.read():
        received += data
    return bytes(received)
