"""Facts about the bridge between a local connection and a stream."""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import AsyncIterator

import pytest

from relay_core.errors import ConnectionLost
from relay_core.layers.layer import Layer, Output, ToLocal, ToPeer
from relay_core.net.streams.bridge import Traffic, carry_bytes
from relay_core.net.streams.local_endpoint import LocalEndpoint, connect_local
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.streams import echo, local_server, read_all, stream_pair


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[LocalEndpoint]:
    local = await connect_local("127.0.0.1", port)
    try:
        yield local
    finally:
        local.abort()


async def test_half_close_goes_both_ways() -> None:
    """A target that answers only after EOF gets its EOF, and its answer arrives."""

    async def answer_after_eof(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(str(len(await reader.read())).encode())

    ours, theirs = stream_pair()
    async with local_server(answer_after_eof) as (port, _), connected(port) as local:
        carrying = asyncio.ensure_future(carry_bytes(local, theirs))
        for _ in range(100):
            await ours.write(bytes(1000))
        await ours.write_eof()
        assert await read_all(ours) == b"100000"
        await carrying
        assert theirs.closed


async def test_traffic_counts_both_directions() -> None:
    """The counters hold what was carried."""
    ours, theirs = stream_pair()
    data = os.urandom(200_000)
    async with local_server(echo) as (port, _), connected(port) as local:
        traffic = Traffic()
        carrying = asyncio.ensure_future(carry_bytes(local, theirs, traffic=traffic))
        await ours.write(data)
        await ours.write_eof()
        assert data == await read_all(ours)
        await carrying
    assert Traffic(sent=200_000, received=200_000) == traffic


async def test_a_broken_stream_resets_the_local_connection() -> None:
    """A stream that breaks is an error, and the local program does not see an orderly end only."""
    ended = asyncio.Event()

    async def note_end(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        ended.set()

    ours, theirs = stream_pair()
    async with local_server(note_end) as (port, _), connected(port) as local:
        ours.abort()
        with pytest.raises(ConnectionLost):
            await carry_bytes(local, theirs)
        await asyncio.wait_for(ended.wait(), DEADLINE)


async def test_a_reset_local_connection_aborts_the_stream() -> None:
    """A local connection that is reset is an error, and the other side gets the reason."""

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    ours, theirs = stream_pair()
    async with local_server(reset) as (port, _), connected(port) as local:
        await ours.write(b"x")
        with pytest.raises(ConnectionLost, match="local connection failed"):
            await carry_bytes(local, theirs)
        with pytest.raises(ConnectionLost, match="aborted: the local connection failed: Connection reset by peer"):
            await ours.read()


async def test_cancelling_never_waits_for_a_reader() -> None:
    """A connection whose target does not read can be cancelled at once."""

    async def never_reads(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    ours, theirs = stream_pair()
    async with local_server(never_reads) as (port, _), connected(port) as local:
        carrying = asyncio.ensure_future(carry_bytes(local, theirs))
        with contextlib.suppress(asyncio.TimeoutError):
            while True:
                await asyncio.wait_for(ours.write(bytes(1 << 20)), 0.5)
        carrying.cancel()
        done, _ = await asyncio.wait({carrying}, timeout=DEADLINE)
        assert carrying in done


async def test_a_slow_local_program_slows_the_peer_down() -> None:
    """A peer can send no more than the window and the socket hold while the local program does not read."""
    reads = asyncio.Event()

    async def read_late(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reads.wait()
        await reader.read()

    ours, theirs = stream_pair()
    async with local_server(read_late) as (port, _), connected(port) as local:
        carrying = asyncio.ensure_future(carry_bytes(local, theirs))
        writing = asyncio.ensure_future(ours.write(bytes(64 << 20)))  # more than any socket holds
        done, _ = await asyncio.wait({writing}, timeout=0.5)
        assert set() == done
        reads.set()
        await writing
        await ours.write_eof()
        await carrying


async def test_a_slow_peer_slows_the_local_program_down() -> None:
    """While the peer takes nothing the local program's socket is not read, and nothing is lost."""
    size = 64 << 20
    sent = asyncio.Event()

    async def send(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(size))
        await writer.drain()
        sent.set()

    ours, theirs = stream_pair()
    async with local_server(send) as (port, _), connected(port) as local:
        carrying = asyncio.ensure_future(carry_bytes(local, theirs))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(sent.wait(), 0.5)
        assert size == len(await read_all(ours))
        await ours.write_eof()
        await carrying


async def test_first_bytes_come_first() -> None:
    """Bytes that were taken from the stream before are written before all others, and counted."""
    ours, theirs = stream_pair()
    traffic = Traffic()
    await ours.write(b"second")
    await ours.write_eof()
    async with local_server(echo) as (port, _), connected(port) as local:
        await carry_bytes(local, theirs, traffic=traffic, first=b"first ")
    assert (b"first second", Traffic(sent=12, received=12)) == (await read_all(ours), traffic)


class Alarm(Layer):
    """A layer with a deadline, at which it sends to both sides."""

    def __init__(self) -> None:
        self.deadline: float | None = None

    def start(self, now: float) -> list[Output]:
        self.deadline = now + 0.05
        return []

    def next_deadline(self) -> float | None:
        return self.deadline

    def tick(self, now: float) -> list[Output]:
        if self.deadline is None or now < self.deadline:
            return []
        self.deadline = None
        return [ToLocal(b"echo this"), ToPeer(b"alarm ")]


async def test_layers_are_called_at_their_deadline() -> None:
    """Deadlines of layers are handled while no bytes arrive."""
    ours, theirs = stream_pair()
    async with local_server(echo) as (port, _), connected(port) as local:
        carrying = asyncio.ensure_future(carry_bytes(local, theirs, [Alarm()]))
        received = b""
        while len(received) < len(b"alarm echo this"):
            received += await ours.read()
        assert received == b"alarm echo this"
        await ours.write_eof()
        await carrying


class Defect(Layer):
    """Fails at the first byte."""

    def receive_peer(self, piece: ToLocal, now: float) -> list[Output]:
        raise ZeroDivisionError


async def test_a_defect_costs_one_connection(caplog: pytest.LogCaptureFixture) -> None:
    """A layer that raises ends its connection with an error and a traceback; the caller gets no exception."""
    ours, theirs = stream_pair()
    async with local_server(echo) as (port, _), connected(port) as local:
        await ours.write(b"x")
        with pytest.raises(ConnectionLost, match="internal error"):
            await carry_bytes(local, theirs, [Defect()])
    assert "ZeroDivisionError" in caplog.text
    with pytest.raises(ConnectionLost):
        await ours.read()
