"""Facts about the ways to a target."""

import asyncio
from pathlib import Path

from tests.bench.programs import Programs
from tests.bench.stage import Stage


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.read(100))
    writer.close()


async def test_the_direct_way_with_delays(tmp_path: Path) -> None:
    """It leads to the target through a proxy on a port of its own."""
    target = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = target.sockets[0].getsockname()[1]
    async with target, Programs(tmp_path) as programs:
        ways = await Stage(programs, delays=True).ways_to(port, "direct")
        assert port != ways["direct"].port
        reader, writer = await asyncio.open_connection("127.0.0.1", ways["direct"].port)
        writer.write(b"ping")
        assert b"ping" == await reader.read(100)
        writer.close()
