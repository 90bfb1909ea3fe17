"""Facts about a TCP connection to a debug adapter."""

import asyncio
import socket
import struct

import pytest

from relay_client.dap import TcpStream
from relay_core.errors import ConnectionLost
from relay_core.program import run


async def reset_connection() -> TcpStream:
    """Return a connection that the peer has reset."""
    was_reset = asyncio.Event()

    async def reset(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        was_reset.set()

    async with await asyncio.start_server(reset, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        await was_reset.wait()
        while not writer.is_closing():
            await asyncio.sleep(0.01)
        return TcpStream(reader, writer)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_connection_that_was_reset(loop, monkeypatch):
    """In both event loops, writing to a connection that was reset raises `ConnectionLost`, and its end does nothing."""
    pytest.importorskip(loop, reason=f"{loop} is not installed")
    monkeypatch.setenv(run.VARIABLE, loop)

    async def main() -> None:
        stream = await reset_connection()
        with pytest.raises(ConnectionLost, match=r"^the connection to the debug adapter failed: "):
            await stream.write(b"data")
        await stream.write_eof()
        await stream.close()

    run.run(main())
