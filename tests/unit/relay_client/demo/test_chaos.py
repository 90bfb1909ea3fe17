"""Facts about the bad network."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator

import pytest

from relay_client.demo.chaos import CutProxy
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.streams import echo, local_server
from tests.support.network.chaos import ChaosProxy


@contextlib.asynccontextmanager
async def through_chaos() -> AsyncIterator[ChaosProxy]:
    async with local_server(echo) as (port, _), ChaosProxy("127.0.0.1", port) as proxy:
        yield proxy


@contextlib.asynccontextmanager
async def connected(proxy: ChaosProxy) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def test_without_settings_it_only_carries() -> None:
    """Bytes go through unchanged, and so does the end of each direction."""
    data = os.urandom(1_000_000)
    async with through_chaos() as proxy, connected(proxy) as (reader, writer):
        writer.write(data)
        writer.write_eof()
        assert data == await reader.read(-1)


async def test_latency_is_added_each_way() -> None:
    """A round trip takes both latencies, and a burst takes no longer than one chunk."""
    async with through_chaos() as proxy, connected(proxy) as (reader, writer):
        proxy.up.latency, proxy.down.latency = 0.05, 0.1
        started = time.monotonic()
        for _ in range(200):
            writer.write(b"x" * 100)
            await asyncio.sleep(0.001)  # the proxy reads each chunk alone
        await reader.readexactly(20_000)
        one_by_one = 200 * proxy.down.latency
        assert 0.15 <= time.monotonic() - started < one_by_one / 2


@pytest.mark.parametrize("size", [0, 1, 999, 70_000])
async def test_a_cut_comes_after_exactly_so_many_bytes(size: int) -> None:
    """The other side gets every byte before the cut and none behind it."""
    async with through_chaos() as proxy:
        proxy.down.cut_after = size
        async with connected(proxy) as (reader, writer):
            with contextlib.suppress(ConnectionError):
                writer.write(bytes(100_000))
                await writer.drain()
            received = b""
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(65536):
                    received += data
            assert size == len(received)


async def test_a_blackhole_keeps_the_sockets_open() -> None:
    """Bytes vanish in one direction, and the connection lives on; later bytes come through again."""
    async with through_chaos() as proxy, connected(proxy) as (reader, writer):
        proxy.down.blackhole = True
        writer.write(b"lost")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.2)
        proxy.down.blackhole = False
        writer.write(b"kept")
        assert await reader.readexactly(4) == b"kept"


@pytest.mark.parametrize("reset", [False, True])
async def test_cut_ends_every_connection(reset: bool) -> None:
    """A cut is seen at once, as an end or as a reset."""
    async with through_chaos() as proxy, connected(proxy) as (reader, writer):
        writer.write(b"x")
        await reader.readexactly(1)
        assert proxy.cut(reset=reset) == 1
        if reset:
            with pytest.raises(ConnectionError):
                await reader.read()
        else:
            assert await reader.read() == b""


async def test_a_stall_stops_the_sender() -> None:
    """While a lane is stalled nothing is taken; after that everything arrives."""
    async with through_chaos() as proxy:
        proxy.up.stalled = True
        async with connected(proxy) as (reader, writer):
            writer.write(b"later")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.2)
            proxy.up.stalled = False
            assert await reader.readexactly(5) == b"later"


async def test_new_connections_can_be_refused() -> None:
    """A network that is down takes no new connection."""
    async with through_chaos() as proxy:
        proxy.accepting = False
        async with connected(proxy) as (reader, _):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""


async def test_the_proxy_of_the_demo() -> None:
    """Bytes and the end pass in both directions; a cut closes all connections, and is counted."""
    async with local_server(echo) as (port, _), CutProxy("127.0.0.1", port) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"bytes")
        assert b"bytes" == await asyncio.wait_for(reader.readexactly(5), DEADLINE)
        assert 1 == proxy.cut()
        assert b"" == await asyncio.wait_for(reader.read(), DEADLINE)
        writer.close()
        again, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"again")
        writer.write_eof()
        assert b"again" == await asyncio.wait_for(again.read(), DEADLINE)
        writer.close()
