"""Moves bytes between a local TCP connection and a `ByteStream`, both ways, with back-pressure.

Each direction waits for its writer before it reads on, so a slow reader slows its peer and memory stays bounded.
EOF is passed on and the other direction goes on; a broken side breaks the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass
from typing import cast

from relay_core.errors import ConnectionLost
from relay_core.net.streams.local_reader import READ_SIZE, LocalReader
from relay_core.net.streams.stream import DirectStream
from relay_core.net.tasks import run_together

__all__ = ["READ_SIZE", "Traffic", "close_writer", "pump", "set_nodelay"]

MORE_THAN_BUFFERED = 1024 * 1024
"""Bytes; a StreamReader holds less, so that reading so many empties it."""


@dataclass
class Traffic:
    """Bytes that went through one pump."""

    sent: int = 0
    """From the local connection to the stream."""
    received: int = 0
    """From the stream to the local connection."""


async def pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stream: DirectStream, traffic: Traffic
) -> None:
    """Carry bytes until both directions have ended; always leaves both sides closed.

    Args:
        reader: Local connection, incoming.
        writer: Local connection, outgoing.
        stream: The other side.
        traffic: Counts what is carried, also when it ends in an error.

    Raises:
        ConnectionLost: the stream broke (the local connection is reset, so that its user sees it too), or the local
            connection broke (the stream is aborted).
    """
    try:
        await run_together(_local_to_stream(reader, writer, stream, traffic), _stream_to_local(stream, writer, traffic))
        await stream.close()
    except BaseException as error:
        stream.abort()
        writer.transport.abort()  # a close would wait for a reader that may never read
        if isinstance(error, OSError):
            raise ConnectionLost(f"the local connection broke: {error.strerror or type(error).__name__}") from error
        raise
    finally:
        await close_writer(writer)


async def _local_to_stream(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stream: DirectStream, traffic: Traffic
) -> None:
    def send(data: bytes) -> int:
        sent = stream.write_some(data)
        traffic.sent += sent
        return sent

    data = await reader.read(MORE_THAN_BUFFERED)
    local: LocalReader | None = None
    if not reader.at_eof():  # it is empty until the next await
        local = LocalReader(cast("asyncio.Transport", writer.transport), take=send)
    while data:
        await stream.write(data)
        traffic.sent += len(data)
        data = b"" if local is None else await local.read()
    await stream.write_eof()


async def _stream_to_local(stream: DirectStream, writer: asyncio.StreamWriter, traffic: Traffic) -> None:
    def receive(data: bytes) -> bool:
        if writer.transport.is_closing() or writer.transport.get_write_buffer_size():
            return False
        writer.write(data)
        traffic.received += len(data)
        return True

    stream.offer_to(receive)
    while data := await stream.read():
        writer.write(data)
        traffic.received += len(data)
        await writer.drain()
    if writer.can_write_eof():
        with contextlib.suppress(OSError):  # the local side has gone already: there is nobody left to tell
            writer.write_eof()


def set_nodelay(writer: asyncio.StreamWriter) -> None:
    """Send small messages at once: a debugger's request waits 40 ms for Nagle's algorithm otherwise."""
    connection: socket.socket | None = writer.get_extra_info("socket")
    if connection is not None and connection.family in {socket.AF_INET, socket.AF_INET6}:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def close_writer(writer: asyncio.StreamWriter) -> None:
    """Close a TCP connection after its last bytes; a peer that has gone already is fine."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
