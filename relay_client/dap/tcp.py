"""A TCP connection as a `ByteStream`: what a debugger on this machine, or a forwarded port, is reached by."""

from __future__ import annotations

import asyncio
import contextlib

from relay_core.errors import ConnectionLost

__all__ = ["TcpStream"]

READ_SIZE = 64 * 1024


class TcpStream:
    """An open connection; see `relay_core.net.streams.stream` for what its methods promise."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        """Return the next bytes, or b"" at the end."""
        try:
            return await self._reader.read(READ_SIZE)
        except OSError as error:
            raise _broken(error) from error

    async def write(self, data: bytes) -> None:
        """Send bytes."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise _broken(error) from error

    async def write_eof(self) -> None:
        """End this direction."""
        self._writer.write_eof()

    async def close(self) -> None:
        """End both directions."""
        self._writer.close()
        with contextlib.suppress(OSError):  # a peer that has gone already is fine
            await self._writer.wait_closed()

    def abort(self, reason: str = "") -> None:  # noqa: ARG002 - TCP cannot tell it
        """Drop the connection."""
        self._writer.transport.abort()


def _broken(error: OSError) -> ConnectionLost:
    return ConnectionLost(f"the connection to the debug adapter broke: {error.strerror or type(error).__name__}")
