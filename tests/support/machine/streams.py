"""A pair of streams that are connected without a session, and real local servers to carry to."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

from relay_core.errors import ConnectionLost
from relay_core.layers.layer import Output, ToLocal, ToPeer
from relay_core.net.session.stream import SessionStream, StreamOwner
from relay_core.net.streams.bridge import ByteStream
from relay_core.net.tasks import TaskSet, run_together
from relay_core.tunnel.outcomes import ResetCode

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class MemoryStream(SessionStream):
    """One end of a pair, joined without a session: half-close works, an abort is a ConnectionLost at the other end."""

    def __init__(self, window: int) -> None:
        self._wire = Wire(window)
        super().__init__(self._wire, 1)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def aborted(self) -> bool:
        return self._wire.was_reset


class Wire(StreamOwner):
    """Carries what one end sends to the other, one turn of the event loop later, as far as that one consumes it."""

    def __init__(self, window: int) -> None:
        self.far_end: MemoryStream
        self.was_reset = False
        self._credit = window
        self._blocked = False

    def send(self, stream_id: int, data: bytes | memoryview) -> int:
        taken = min(len(data), self._credit)
        self._credit -= taken
        self._blocked = taken < len(data)
        if taken:
            self._later(self.far_end.deliver, bytes(data[:taken]))
        return taken

    def send_eof(self, stream_id: int) -> None:
        self._later(self.far_end.deliver_eof)

    def reset(self, stream_id: int, code: ResetCode, text: str) -> None:
        self.was_reset = True
        self._later(self.far_end.break_off, ConnectionLost(f"the other end was aborted: {text}"))

    def forget(self, stream_id: int) -> None:
        pass

    def consumed(self, stream_id: int, size: int) -> None:
        wire = self.far_end._wire
        wire._credit += size
        if wire._blocked:
            self._later(self.far_end.deliver_room)

    def _later(self, call: Callable[..., None], *arguments: object) -> None:
        asyncio.get_running_loop().call_soon(call, *arguments)


def stream_pair(window: int = 256 * 1024) -> tuple[MemoryStream, MemoryStream]:
    """Return two ends, of which each may be so many bytes ahead of the other's consumer."""
    left, right = MemoryStream(window), MemoryStream(window)
    left._wire.far_end, right._wire.far_end = right, left
    return left, right


@contextlib.asynccontextmanager
async def local_server(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[int, list[int]]]:
    """Serve `handler` on a free port of 127.0.0.1; yields the port and a list that grows with each connection."""
    connections: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError):
                await handler(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):  # includes TLS errors
                await writer.wait_closed()

    async with TaskSet() as tasks:

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.append(len(connections) + 1)
            task = tasks.spawn(serve(reader, writer), name="local server connection")
            # Also if it is cancelled before its first step, in which case its `finally` never runs.
            task.add_done_callback(lambda _task: writer.transport.abort())

        server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
        try:
            yield server.sockets[0].getsockname()[1], connections
        finally:
            # asyncio loses a connection that it has accepted and not passed on yet when its server is closed.
            with contextlib.suppress(NotImplementedError):  # an event loop of Windows
                asyncio.get_running_loop().remove_reader(server.sockets[0])
            for _ in range(3):
                await asyncio.sleep(0)
            server.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send back whatever comes, until EOF."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry what comes until EOF or until either connection breaks, and close the other."""
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def carry_to(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry a connection to another port of this machine, as a proxy does."""
    up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        await run_together(pump(reader, up_writer), pump(up_reader, writer))
    finally:
        up_writer.transport.abort()


async def read_all(stream: ByteStream) -> bytes:
    """Return everything up to EOF."""
    received = bytearray()
    while data := await stream.read():
        received += data
    return bytes(received)


def split(outputs: list[Output]) -> tuple[bytes, bytes]:
    """Return what layers want to send to the peer, and what to the local program."""
    to_peer = b"".join(output.data for output in outputs if isinstance(output, ToPeer))
    return to_peer, b"".join(output.data for output in outputs if isinstance(output, ToLocal))


class Sink:
    """Is given what happens on a stream, and remembers it."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.pieces: list[bytes] = []
        self.happened: list[str] = []
        self.error: ConnectionLost | None = None

    def peer_data(self, data: bytes) -> None:
        self.data += data
        self.pieces.append(bytes(data))

    def peer_eof(self) -> None:
        self.happened.append("eof")

    def peer_lost(self, error: ConnectionLost) -> None:
        self.error = error
        self.happened.append("lost")

    def peer_writing_paused(self) -> None:
        self.happened.append("paused")

    def peer_writing_resumed(self) -> None:
        self.happened.append("resumed")
