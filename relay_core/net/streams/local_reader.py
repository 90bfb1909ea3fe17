"""The incoming side of a local TCP connection, without the copies that asyncio's StreamReader makes of every byte.

It takes a connection over from its StreamReader, and leaves the outgoing side with the StreamWriter: what asyncio
reports about that is passed on to the protocol that was there before.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import cast

__all__ = ["READ_SIZE", "LocalReader"]

READ_SIZE = 64 * 1024
"""Bytes handed on at a time: large enough for bulk, small enough to take turns with other streams."""
BUFFER_SIZE = 256 * 1024
"""Bytes per read: what a busy writer puts into a socket while this process does something else."""
UNREAD_LIMIT = BUFFER_SIZE
"""Bytes at which the connection is not read any more."""
BURST = 16 * 1024
"""Reads below this are the last for the moment, as a rule: what was asked, or answered, is complete."""


class LocalReader(asyncio.BufferedProtocol):
    """Reads a connection whose StreamReader is empty and has not seen its end.

    Args:
        transport: The connection's.
        take: Offered what arrives while somebody waits in `read`; returns how many bytes of it `read` need not return.
    """

    def __init__(self, transport: asyncio.Transport, take: Callable[[bytes], int] = lambda _data: 0) -> None:
        self._transport = transport
        self._streams = cast("asyncio.Protocol", transport.get_protocol())
        self._socket: socket.socket | None = transport.get_extra_info("socket")
        if not hasattr(socket, "TCP_QUICKACK") or self._socket is None or self._socket.family == socket.AF_UNIX:
            self._socket = None
        self._buffer = _shared_buffer()
        self._pieces: deque[bytes] = deque()
        self._unread = 0
        self._paused = False
        self._ended = False
        self._error: Exception | None = None
        self._readable = asyncio.Event()
        self._reading = False
        """Somebody waits in `read`."""
        self._take = take
        transport.set_protocol(self)

    def __repr__(self) -> str:
        return f"<LocalReader unread={self._unread}{' ended' if self._ended else ''}>"

    async def read(self) -> bytes:
        """Return the next bytes, or b"" at the end.

        Raises:
            OSError: the connection broke.
        """
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            self._readable.clear()
            self._reading = True
            try:
                await self._readable.wait()
            finally:
                self._reading = False
        data = self._pieces.popleft()
        self._unread -= len(data)
        if self._paused and self._unread < UNREAD_LIMIT:
            self._paused = False
            self._transport.resume_reading()
        return data

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Return where to read to."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes were read."""
        if self._socket is not None and nbytes < BURST:
            # debugpy's adapter leaves Nagle's algorithm on: its next message waits until our kernel acknowledges this
            # one, which it puts off for 40 ms unless told to do it now.
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        for start in range(0, nbytes, READ_SIZE):
            data = bytes(self._buffer[start : min(start + READ_SIZE, nbytes)])
            if self._reading and not self._pieces:
                data = data[self._take(data) :]
            if data:
                self._pieces.append(data)
                self._unread += len(data)
                self._readable.set()
        if self._unread >= UNREAD_LIMIT and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """The peer ended its direction; ours stays open."""
        self._ended = True
        self._readable.set()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Both directions have ended."""
        self._ended = True
        self._error = exc
        self._readable.set()
        self._streams.connection_lost(exc)

    def pause_writing(self) -> None:
        """For the StreamWriter."""
        self._streams.pause_writing()

    def resume_writing(self) -> None:
        """For the StreamWriter."""
        self._streams.resume_writing()


_of_thread = threading.local()


def _shared_buffer() -> memoryview:
    """Return the one buffer that all connections of a thread read to: asyncio fills it and hands it over at once."""
    if not hasattr(_of_thread, "buffer"):
        _of_thread.buffer = memoryview(bytearray(BUFFER_SIZE))
    buffer: memoryview = _of_thread.buffer
    return buffer
