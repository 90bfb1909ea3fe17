"""The local end of a connection: an asyncio protocol on a TCP socket, whose events go to a handler.

asyncio reads into one shared buffer. Its content is copied once and passed to the handler in the same turn of the event
loop. Without a handler, up to `UNREAD_LIMIT` bytes are buffered; then reading from the socket is paused.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol, cast

from relay_core.net.memory import READ_BUFFER_SIZE, shared_read_buffer

UNREAD_LIMIT = READ_BUFFER_SIZE
"""Number of bytes that are buffered without a handler before reading is paused."""
BURST = 16 * 1024
"""A read of fewer bytes usually completes a request or a response, and the program then waits for the answer."""


class LocalHandler(Protocol):
    """Receives the events of a local connection; its methods must not raise."""

    def local_data(self, data: bytes) -> None:
        """Handle one or more bytes from the local program."""

    def local_eof(self) -> None:
        """Handle the end of the local program's direction; no more bytes follow."""

    def local_lost(self, error: Exception | None) -> None:
        """Handle the end of the connection in both directions; no other method is called after this."""

    def local_writing_paused(self) -> None:
        """Stop writing, because the write buffer is full: the local program reads too slowly."""

    def local_writing_resumed(self) -> None:
        """Continue writing: the local program has caught up."""


class LocalSide(Protocol):
    """The local end of a connection: a socket (`LocalEndpoint`), or a part of this program in place of a socket."""

    ended: asyncio.Event
    """Set when the local program has ended its direction, or the connection is closed."""

    @property
    def is_gone(self) -> bool:
        """Whether the connection has ended in both directions."""

    def deliver_to(self, handler: LocalHandler) -> None:
        """Pass the buffered bytes to the handler, and from now on all events as they occur."""

    def detach(self) -> None:
        """Remove the handler, and buffer received bytes for the next one."""

    def write(self, data: bytes) -> None:
        """Send bytes to the local program, or drop them if the connection is closed."""

    def write_eof(self) -> None:
        """End this direction after the bytes written so far; the other direction stays open."""

    def pause_reading(self) -> None:
        """Stop reading from the local program."""

    def resume_reading(self) -> None:
        """Continue to read from the local program."""

    async def close(self) -> None:
        """Close the connection after sending the last bytes; does nothing if it is closed already."""

    def abort(self) -> None:
        """Close the connection immediately and discard unsent bytes."""


class LocalEndpoint(asyncio.BufferedProtocol):
    """One local connection; created by `connect_local` and `LocalServer.open`.

    Args:
        on_connected: Called with this object when it is connected.
    """

    def __init__(self, on_connected: Callable[[LocalEndpoint], None] = lambda _endpoint: None) -> None:
        self.ended = asyncio.Event()
        """Set when the local program has ended its direction, or the connection is closed."""
        self._on_connected = on_connected
        self.transport = cast("asyncio.Transport", None)  # set by connection_made, before anything else is called
        self._quick: Callable[[], None] | None = None
        """The socket, if it supports TCP_QUICKACK."""
        self._is_acknowledged = False
        """Whether bytes were sent since the last read: their packets acknowledge that read."""
        self._buffer = shared_read_buffer()
        self._handler: LocalHandler | None = None
        self._unread: deque[bytes] = deque()
        """Bytes that were received without a handler."""
        self._unread_size = 0
        self._held = False
        """True if the handler has paused reading."""
        self._is_waiting_for_others = False
        """True until other connections have had their turn."""
        self._reading_paused = False
        self._writing_paused = False
        self._eof_received = self._eof_written = False
        self._error: Exception | None = None
        self._gone = asyncio.Event()

    # Called by the owner:

    @property
    def is_gone(self) -> bool:
        """Whether the connection has ended in both directions."""
        return self._gone.is_set()

    def deliver_to(self, handler: LocalHandler) -> None:
        """Pass the buffered bytes to the handler, and from now on all events as they occur."""
        self._handler = handler  # each call below may detach it again
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
        """Remove the handler, and buffer received bytes for the next one."""
        self._handler = None
        self.resume_reading()

    def write(self, data: bytes) -> None:
        """Send bytes to the local program, or drop them if the connection is closed or this direction has ended."""
        if not (self._eof_written or self.transport.is_closing()):
            self._is_acknowledged = True
            self.transport.write(data)

    def write_eof(self) -> None:
        """End this direction after the bytes written so far; the other direction stays open."""
        if not self.transport.is_closing() and self.transport.can_write_eof():
            self._eof_written = True
            with contextlib.suppress(OSError):  # the local program has closed the connection
                self.transport.write_eof()

    def pause_reading(self) -> None:
        """Stop reading from the local program."""
        self._held = True
        self._pause_or_resume()

    def resume_reading(self) -> None:
        """Continue to read from the local program."""
        self._held = False
        self._pause_or_resume()

    async def close(self) -> None:
        """Close the connection after sending the last bytes; does nothing if it is closed already."""
        self.transport.close()
        await self._gone.wait()

    def abort(self) -> None:
        """Close the connection immediately and discard unsent bytes; the program sees a reset if it still sends."""
        self.transport.abort()

    # Called by asyncio:

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport. asyncio has disabled Nagle's algorithm, so small messages are sent without delay."""
        self.transport = cast("asyncio.Transport", transport)
        connection: socket.socket | None = transport.get_extra_info("socket")
        is_tcp = connection is not None and connection.family in {socket.AF_INET, socket.AF_INET6}
        if connection is not None and is_tcp and hasattr(socket, "TCP_QUICKACK"):
            self._quick = partial(connection.setsockopt, socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        self._on_connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Return the buffer that all connections of this thread share."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Handle bytes that were read into the buffer."""
        self._is_acknowledged = False
        if nbytes == len(self._buffer):
            self._let_others_read()
        self._received(bytes(self._buffer[:nbytes]))
        if self._quick is None or nbytes >= BURST or self._is_acknowledged or self.transport.is_closing():
            return
        # debugpy's adapter does not disable Nagle's algorithm (RFC 896): its next message waits until the kernel of
        # this machine acknowledges this one, which the kernel delays by 40 ms unless TCP_QUICKACK is set (tcp(7)). The
        # option is not permanent, so it is set after each read.
        with contextlib.suppress(OSError):
            self._quick()

    def eof_received(self) -> bool:
        """Handle the end of the local program's direction; return True to keep the other direction open."""
        self._eof_received = True
        self.ended.set()
        if self._handler is not None:
            self._handler.local_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of both directions."""
        self._error = exc
        self._gone.set()
        self.ended.set()
        if self._handler is not None:
            self._handler.local_lost(exc)

    def pause_writing(self) -> None:
        """Pause the handler, because the write buffer is full."""
        self._writing_paused = True
        if self._handler is not None:
            self._handler.local_writing_paused()

    def resume_writing(self) -> None:
        """Resume the handler, because the write buffer has room again."""
        self._writing_paused = False
        if self._handler is not None:
            self._handler.local_writing_resumed()

    def _let_others_read(self) -> None:
        """Continue to read in the next iteration of the event loop, as `TlsTransport` does, and for the same reason."""
        self._is_waiting_for_others = True
        self._pause_or_resume()
        asyncio.get_running_loop().call_soon(self._read_again)

    def _read_again(self) -> None:
        self._is_waiting_for_others = False
        self._pause_or_resume()

    def _received(self, data: bytes) -> None:
        if self._handler is not None:
            self._handler.local_data(data)
            return
        self._unread.append(data)
        self._unread_size += len(data)
        self._pause_or_resume()

    def _pause_or_resume(self) -> None:
        paused = self._held or self._is_waiting_for_others or self._unread_size >= UNREAD_LIMIT
        # asyncio would report EOF a second time if reading were resumed after it.
        if paused == self._reading_paused or self._eof_received or self.transport.is_closing():
            return
        self._reading_paused = paused
        if paused:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()


async def connect_local(host: str, port: int) -> LocalEndpoint:
    """Connect to a program on this machine.

    Raises:
        OSError: nothing is listening there.
    """
    _, endpoint = await asyncio.get_running_loop().create_connection(LocalEndpoint, host, port)
    return endpoint
