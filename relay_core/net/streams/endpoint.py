"""A local TCP connection as a protocol that pushes: it owns the socket both ways.

asyncio reads into one buffer, which is copied once, in pieces, and handed over in the same turn of the event loop. What
nobody takes yet is kept, up to `UNREAD_LIMIT`; beyond that the socket is not read.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

__all__ = ["READ_SIZE", "UNREAD_LIMIT", "LocalEndpoint", "LocalHandler", "connect_local", "listen_local"]

READ_SIZE = 64 * 1024
"""Bytes handed on at a time: large enough for bulk, small enough to take turns with other streams."""
BUFFER_SIZE = 256 * 1024
"""Bytes per read: what a busy writer puts into a socket while this process does something else."""
UNREAD_LIMIT = BUFFER_SIZE
"""Bytes kept for a handler to come, at which the connection is not read any more."""
BURST = 16 * 1024
"""Bytes; a shorter read is mostly the last for the moment: the request or the answer is complete."""


class LocalHandler(Protocol):
    """Is given what happens on a local connection; must not raise."""

    def local_data(self, data: bytes) -> None:
        """Take bytes of the local program, at least one."""

    def local_eof(self) -> None:
        """The local program has ended its direction; there will be no more bytes."""

    def local_lost(self, error: Exception | None) -> None:
        """The connection is gone, in both directions; nothing else will be called."""

    def local_writing_paused(self) -> None:
        """The local program takes less than it is given: write nothing else for now."""

    def local_writing_resumed(self) -> None:
        """The local program has caught up."""


class LocalEndpoint(asyncio.BufferedProtocol):
    """One local connection; made by `connect_local` and `listen_local`.

    Args:
        on_connected: Called with it once it is connected.
    """

    def __init__(self, on_connected: Callable[[LocalEndpoint], None] = lambda _endpoint: None) -> None:
        self.ended = asyncio.Event()
        """Set when the local program has ended its direction, or the connection is gone."""
        self._on_connected = on_connected
        self._transport = cast("asyncio.Transport", None)  # set by connection_made, before anything else is called
        self._quick: socket.socket | None = None
        """The socket, where its acknowledgements can be hurried."""
        self._buffer = _shared_buffer()
        self._handler: LocalHandler | None = None
        self._unread: deque[bytes] = deque()
        """What came while nothing handled it."""
        self._unread_size = 0
        self._held = False
        """The handler wants nothing for now."""
        self._reading_paused = False
        self._writing_paused = False
        self._eof_received = False
        self._error: Exception | None = None
        self._gone = asyncio.Event()

    def __repr__(self) -> str:
        state = "gone" if self._gone.is_set() else "ended" if self._eof_received else "open"
        return f"<LocalEndpoint {state} unread={self._unread_size}{' paused' if self._reading_paused else ''}>"

    # What the owner does:

    @property
    def is_gone(self) -> bool:
        """Whether the connection has ended in both directions."""
        return self._gone.is_set()

    def deliver_to(self, handler: LocalHandler) -> None:
        """Hand over what has come so far, and from now on what comes, as it comes."""
        self._handler = handler
        if self._writing_paused:
            handler.local_writing_paused()
        while self._unread and self._handler is handler:
            data = self._unread.popleft()
            self._unread_size -= len(data)
            handler.local_data(data)
        self._pause_or_resume()
        if self._eof_received and self._handler is handler:
            handler.local_eof()
        if self._gone.is_set() and self._handler is handler:
            handler.local_lost(self._error)

    def detach(self) -> None:
        """Keep what comes for the next handler."""
        self._handler = None
        self.resume_reading()

    def write(self, data: bytes) -> None:
        """Send bytes to the local program, or drop them if it has gone."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def write_eof(self) -> None:
        """End this direction behind what was written; the other one stays open."""
        if not self._transport.is_closing() and self._transport.can_write_eof():
            with contextlib.suppress(OSError):  # the local program has gone already
                self._transport.write_eof()

    def pause_reading(self) -> None:
        """Take no more from the local program."""
        self._held = True
        self._pause_or_resume()

    def resume_reading(self) -> None:
        """Take bytes again."""
        self._held = False
        self._pause_or_resume()

    async def close(self) -> None:
        """Close the connection after its last bytes; a program that has gone already is fine."""
        self._transport.close()
        await self._gone.wait()

    def abort(self) -> None:
        """Drop the connection and what was not sent; the local program sees a reset if it had more to say."""
        self._transport.abort()

    # What asyncio does:

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection; asyncio has switched off Nagle's algorithm, so small messages leave at once."""
        self._transport = cast("asyncio.Transport", transport)
        connection: socket.socket | None = transport.get_extra_info("socket")
        if hasattr(socket, "TCP_QUICKACK") and connection is not None and connection.family != socket.AF_UNIX:
            self._quick = connection
        self._on_connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Return where to read to."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes were read."""
        if self._quick is not None and nbytes < BURST:
            # debugpy's adapter leaves Nagle's algorithm on: its next message waits until our kernel acknowledges this
            # one, which it delays by 40 ms unless asked to do it now.
            with contextlib.suppress(OSError):
                self._quick.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        for start in range(0, nbytes, READ_SIZE):
            # A handler that pauses reading in between gets the rest of this read all the same: it is bounded.
            self._received(bytes(self._buffer[start : min(start + READ_SIZE, nbytes)]))

    def eof_received(self) -> bool:
        """The local program ended its direction; ours stays open."""
        self._eof_received = True
        self.ended.set()
        if self._handler is not None:
            self._handler.local_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Both directions have ended."""
        self._error = exc
        self._gone.set()
        self.ended.set()
        if self._handler is not None:
            self._handler.local_lost(exc)

    def pause_writing(self) -> None:
        """Pass on that the local program is slow."""
        self._writing_paused = True
        if self._handler is not None:
            self._handler.local_writing_paused()

    def resume_writing(self) -> None:
        """Pass on that the local program has caught up."""
        self._writing_paused = False
        if self._handler is not None:
            self._handler.local_writing_resumed()

    def _received(self, data: bytes) -> None:
        if self._handler is not None:
            self._handler.local_data(data)
            return
        self._unread.append(data)
        self._unread_size += len(data)
        self._pause_or_resume()

    def _pause_or_resume(self) -> None:
        paused = self._held or self._unread_size >= UNREAD_LIMIT
        # asyncio would read the end once more if it were resumed after it.
        if paused == self._reading_paused or self._eof_received or self._transport.is_closing():
            return
        self._reading_paused = paused
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


async def connect_local(host: str, port: int) -> LocalEndpoint:
    """Connect to a program of this machine.

    Raises:
        OSError: it does not listen.
    """
    _, endpoint = await asyncio.get_running_loop().create_connection(LocalEndpoint, host, port)
    return endpoint


async def listen_local(on_connected: Callable[[LocalEndpoint], None], host: str, port: int) -> asyncio.Server:
    """Accept the connections of programs of this machine, until the server is closed.

    Raises:
        OSError: the port cannot be had.
    """
    return await asyncio.get_running_loop().create_server(lambda: LocalEndpoint(on_connected), host, port)


_of_thread = threading.local()


def _shared_buffer() -> memoryview:
    """Return the one buffer that all connections of a thread read to: asyncio fills it and hands it over at once."""
    if not hasattr(_of_thread, "buffer"):
        _of_thread.buffer = memoryview(bytearray(BUFFER_SIZE))
    buffer: memoryview = _of_thread.buffer
    return buffer
