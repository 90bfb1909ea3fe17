"""A TCP connection as a `ByteStream`, for a debugger on this machine or behind a forwarded port."""

from __future__ import annotations

import asyncio
import contextlib

from relay_core.errors import ConnectionLost

__all__ = ["TcpStream"]

READ_SIZE = 64 * 1024


class TcpStream:
    """An open TCP connection; `relay_core.net.streams.bridge` documents the contract of its methods."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        """Return the next bytes, or b"" at the end."""
        try:
            return await self._reader.read(READ_SIZE)
        except OSError as error:
            raise _connection_lost(error) from error

    async def write(self, data: bytes) -> None:
        """Send bytes."""
        try:
            if not self._writer.is_closing():  # if it is, `drain` reports why
                self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise _connection_lost(error) from error

    async def write_eof(self) -> None:
        """Close the sending direction."""
        if not self._writer.is_closing():
            self._writer.write_eof()

    async def close(self) -> None:
        """Close both directions."""
        self._writer.close()
        with contextlib.suppress(OSError):  # the peer may already have closed it
            await self._writer.wait_closed()

    def abort(self, reason: str = "") -> None:  # noqa: ARG002 - TCP cannot transmit a reason
        """Close the connection without sending the buffered bytes."""
        self._writer.transport.abort()


def _connection_lost(error: OSError) -> ConnectionLost:
    return ConnectionLost(f"the connection to the debug adapter failed: {error.strerror or type(error).__name__}")
