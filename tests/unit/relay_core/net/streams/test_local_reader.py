"""Facts about reading a local connection, over a real one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from relay_core.net.streams.local_reader import READ_SIZE, LocalReader


@contextlib.asynccontextmanager
async def connection(take: Callable[[bytes], int]) -> AsyncIterator[tuple[asyncio.StreamWriter, LocalReader]]:
    """Yield the far end of a connection, and the reader of the near one."""
    accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    server = await asyncio.start_server(lambda _reader, writer: accepted.put_nowait(writer), "127.0.0.1", 0)
    _, ours = await asyncio.open_connection(*server.sockets[0].getsockname())
    theirs = await accepted.get()
    try:
        yield theirs, LocalReader(ours.transport, take)
    finally:
        server.close()
        for writer in (ours, theirs):
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def test_what_is_taken_is_not_read() -> None:
    """Pieces that are taken whole wake nobody; the end is read."""
    taken = bytearray()

    def take(data: bytes) -> int:
        taken.extend(data)
        return len(data)

    async with connection(take) as (far_end, reader):
        reading = asyncio.ensure_future(reader.read())
        await asyncio.sleep(0)
        far_end.write(bytes(10 * READ_SIZE))
        far_end.write_eof()
        assert b"" == await reading
        assert 10 * READ_SIZE == len(taken)


@pytest.mark.parametrize("takes", [0, 1, 1000, READ_SIZE - 1])
async def test_what_is_not_taken_is_read_in_order(takes: int) -> None:
    """A piece that is taken in part is read from there on, and nothing overtakes it."""
    sent = bytes(range(256)) * 4 * 1024
    whole = bytearray()

    def take(data: bytes) -> int:
        whole.extend(data[:takes])
        return min(takes, len(data))

    async with connection(take) as (far_end, reader):
        far_end.write(sent)
        far_end.write_eof()
        while data := await reader.read():
            whole += data
    assert sent == whole
