"""Facts about a local connection that pushes, over a real one."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from relay_core.net.streams.local_endpoint import UNREAD_LIMIT, LocalEndpoint
from relay_core.net.streams.local_server import LocalServer
from tests.support.machine.deadline import DEADLINE


class Handler:
    """Remembers what it is given, in order; sets `changed` each time."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.happened: list[str] = []
        self.error: Exception | None = None
        self.changed = asyncio.Event()

    def local_data(self, data: bytes) -> None:
        self.data += data
        self.changed.set()

    def local_eof(self) -> None:
        self._note("eof")

    def local_lost(self, error: Exception | None) -> None:
        self.error = error
        self._note("lost")

    def local_writing_paused(self) -> None:
        self._note("paused")

    def local_writing_resumed(self) -> None:
        self._note("resumed")

    def _note(self, what: str) -> None:
        self.happened.append(what)
        self.changed.set()

    async def until(self, what: str) -> None:
        while what not in self.happened:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), DEADLINE)

    async def until_size(self, size: int) -> None:
        while len(self.data) < size:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), DEADLINE)


@contextlib.asynccontextmanager
async def connection() -> AsyncIterator[tuple[LocalEndpoint, asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yield an endpoint, and the program at its other end."""
    accepted: asyncio.Queue[LocalEndpoint] = asyncio.Queue()
    server = await LocalServer.open("127.0.0.1", 0, lambda: LocalEndpoint(accepted.put_nowait))
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    endpoint = await accepted.get()
    try:
        yield endpoint, reader, writer
    finally:
        server.close()
        endpoint.abort()
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_bytes_and_the_end_are_pushed() -> None:
    """All bytes reach the handler in order, and then the end."""
    sent = bytes(range(256)) * 4 * 1024
    async with connection() as (endpoint, _, program):
        handler = Handler()
        endpoint.deliver_to(handler)
        program.write(sent)
        program.write_eof()
        await handler.until("eof")
    assert sent == handler.data


async def test_what_came_early_comes_first() -> None:
    """What came before there was a handler is kept within a limit, and nothing overtakes it."""
    sent = bytes(range(256)) * 16 * 1024
    async with connection() as (endpoint, _, program):
        program.write(sent)
        program.write_eof()
        while not endpoint._reading_paused:
            await asyncio.sleep(0.01)
        assert endpoint._unread_size < 2 * UNREAD_LIMIT
        handler = Handler()
        endpoint.deliver_to(handler)
        await handler.until("eof")
    assert sent == handler.data


async def test_end_that_came_early() -> None:
    """An end that came before there was a handler is reported to it, behind the bytes."""
    async with connection() as (endpoint, _, program):
        program.write(b"last")
        program.write_eof()
        await asyncio.wait_for(endpoint.ended.wait(), DEADLINE)
        handler = Handler()
        endpoint.deliver_to(handler)
        assert (b"last", ["eof"]) == (handler.data, handler.happened)


async def test_paused_reading_slows_the_program_down() -> None:
    """While the handler wants nothing, a busy program is stopped by TCP, and nothing is lost."""
    async with connection() as (endpoint, _, program):
        handler = Handler()
        endpoint.deliver_to(handler)
        endpoint.pause_reading()
        size = 32 * 1024 * 1024  # more than the sockets of both sides hold
        program.write(bytes(size))
        program.write_eof()
        draining = asyncio.ensure_future(program.drain())
        done, _ = await asyncio.wait({draining}, timeout=0.2)
        assert (set(), 0) == (done, len(handler.data))
        endpoint.resume_reading()
        await handler.until("eof")
        assert size == len(handler.data)
        await draining


@pytest.mark.parametrize("is_paused", [True, False])
async def test_a_busy_program_lets_others_be_read(is_paused: bool) -> None:
    """After a read that fills the buffer, the next one is in a later iteration; a handler that pauses stays paused."""
    async with connection() as (endpoint, _, _program):
        endpoint.deliver_to(Handler())
        size = len(endpoint.get_buffer(-1))
        endpoint.buffer_updated(size - 1)
        assert not endpoint._reading_paused
        endpoint.buffer_updated(size)
        assert endpoint._reading_paused
        endpoint.pause_reading()
        if not is_paused:
            endpoint.resume_reading()
            assert endpoint._reading_paused
        await asyncio.sleep(0)
        assert is_paused == endpoint._reading_paused


async def test_a_slow_program_pauses_writing() -> None:
    """A program that does not read pauses the handler; as soon as it reads on, the handler is resumed."""
    async with connection() as (endpoint, reader, _):
        handler = Handler()
        endpoint.deliver_to(handler)
        size = 0
        while "paused" not in handler.happened:
            endpoint.write(bytes(1 << 20))
            size += 1 << 20
        endpoint.write_eof()
        assert size == len(await asyncio.wait_for(reader.read(), DEADLINE))
        await handler.until("resumed")
        assert ["paused", "resumed"] == handler.happened


async def test_detached_it_keeps_what_comes() -> None:
    """Between two handlers nothing is lost, and a pause ends with the handler that wanted it."""
    async with connection() as (endpoint, _, program):
        first, second = Handler(), Handler()
        endpoint.deliver_to(first)
        program.write(b"one")
        await first.until_size(3)
        endpoint.pause_reading()
        endpoint.detach()
        program.write(b"two")
        while not endpoint._unread_size:
            await asyncio.sleep(0.01)
        endpoint.deliver_to(second)
        program.write(b"three")
        await second.until_size(8)
    assert (b"one", b"twothree") == (first.data, second.data)


async def test_reset_is_a_loss_with_its_reason() -> None:
    """A reset by the program is a loss, not an EOF; later writes are dropped."""
    async with connection() as (endpoint, _, program):
        handler = Handler()
        endpoint.deliver_to(handler)
        linger = b"\x01\0\0\0\0\0\0\0"  # close with RST instead of FIN
        program.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        program.transport.abort()
        await handler.until("lost")
        assert (["lost"], ConnectionResetError, True) == (handler.happened, type(handler.error), endpoint.is_gone)
        endpoint.write(b"late")
        endpoint.write_eof()
        await endpoint.close()


async def test_small_messages_leave_at_once() -> None:
    """A debugger's request does not wait 40 ms for Nagle's algorithm."""
    async with connection() as (endpoint, _, _program):
        assert endpoint.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_bytes_after_the_end_are_dropped() -> None:
    """A last message after the end of this direction, as when the client stops at that moment, is not an error."""
    async with connection() as (endpoint, reader, _):
        endpoint.write(b"last")
        endpoint.write_eof()
        endpoint.write(b"too late")
        assert b"last" == await asyncio.wait_for(reader.read(), DEADLINE)


async def test_without_quick_acknowledgements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only Linux has TCP_QUICKACK; elsewhere, bytes are pushed as well."""
    monkeypatch.delattr("socket.TCP_QUICKACK")
    async with connection() as (endpoint, _, program):
        handler = Handler()
        endpoint.deliver_to(handler)
        program.write(b"x")
        await handler.until_size(1)
