"""A TCP connection with TLS: a thin driver between asyncio and the connection's current handler.

It transfers bytes, pauses, resumes, closes and aborts; the handler makes the protocol decisions. All connections of a
server read into one buffer. asyncio fills it and passes it on in the same call, so it is free again when `received`
returns. Before a handler calls anything else, it must copy the bytes that it keeps (unmasking does that anyway).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from relay_server.connection.unauthenticated import Place

__all__ = ["READ_BYTES", "Connection", "Handler"]

READ_BYTES = 128 * 1024
"""Size of the read buffer. Measured: with 64 KiB, throughput is 10 % lower; with 256 KiB or more, memory management
costs more than the larger buffer saves."""
WRITE_HIGH_WATER = 512 * 1024
WRITE_LOW_WATER = 128 * 1024
"""Sizes of the write buffer at which a writer is paused and resumed, respectively; they limit the memory that a slow
peer uses."""
CLOSE_LIMIT = 30.0
"""Seconds for a peer to receive the last bytes and close TLS; after that, the connection is dropped."""


class Handler(Protocol):
    """Processes the events of a connection."""

    def received(self, data: memoryview) -> None:
        """Bytes were received; `data` is valid during this call, and only until another connection is used."""

    def writing_paused(self) -> None:
        """The write buffer is full, because the peer is slow."""

    def writing_resumed(self) -> None:
        """The write buffer has room again."""

    def lost(self) -> None:
        """The connection is closed, for any reason; no further method is called."""


class Connection(asyncio.BufferedProtocol):
    """A connection of the server, used by one handler at a time.

    Args:
        buffer: The server's read buffer.
        made: Called with the connection when TLS is established; sets `handler`.
        gone: Called with the connection when it is closed, after the handler.
    """

    def __init__(
        self, buffer: memoryview, made: Callable[[Connection], None], gone: Callable[[Connection], None]
    ) -> None:
        self._buffer = buffer
        self._made = made
        self._gone = gone
        self._transport = cast("asyncio.Transport", None)  # set by connection_made, before anything else is called
        self._loop = asyncio.get_running_loop()
        self._close_timer: asyncio.TimerHandle | None = None
        self._ended = False
        self.handler: Handler | None = None
        self.place: Place | None = None
        """The slot in the budget for unauthenticated connections, until `prove` is called or the connection closes."""
        self.remote: tuple[str, int] = ("", 0)
        self.reading_paused = False
        self.writing_paused = False

    def __repr__(self) -> str:
        state = "ended" if self._ended else "open"
        paused = "".join(f" {what}-paused" for what in ("reading", "writing") if getattr(self, f"{what}_paused"))
        return f"<Connection {self.remote[0]}:{self.remote[1]} {state}{paused}>"

    # Called by the handler:

    @property
    def is_open(self) -> bool:
        """True if the connection is neither closed nor closing."""
        return not (self._ended or self._transport.is_closing())

    @property
    def buffered(self) -> int:
        """Bytes in the write buffer, not yet passed to the kernel."""
        return 0 if self._ended else self._transport.get_write_buffer_size()

    def prove(self) -> None:
        """Record that the peer's token or secret is valid; the connection is then not dropped to admit a new one."""
        if self.place is not None:
            self.place.leave()

    def write(self, data: bytes) -> None:
        """Send bytes; if the connection is closed, drop them."""
        if self.is_open:
            self._transport.write(data)

    def pause_reading(self) -> None:
        """Stop reading, so that TCP slows the peer down."""
        if not self.reading_paused and self.is_open:
            self.reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Start reading again."""
        if self.reading_paused and self.is_open:
            self.reading_paused = False
            self._transport.resume_reading()

    def close(self) -> None:
        """Send the write buffer, then close the connection; data received in the meantime is dropped."""
        if self.is_open and self._close_timer is None:
            self.resume_reading()  # to receive the peer's close_notify
            self._close_timer = self._loop.call_later(CLOSE_LIMIT, self.abort)
            self._shut()

    def abort(self) -> None:
        """Drop the connection now."""
        if not self._ended:
            self._transport.abort()

    # Called by asyncio:

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Report the connection when TLS is established."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER, low=WRITE_LOW_WATER)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.remote = (str(peer[0]), int(peer[1]))
        self._made(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Return the server's read buffer."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass the received bytes to the handler."""
        self._deliver(self._buffer[:nbytes])

    def pause_writing(self) -> None:
        """Report to the handler that the write buffer is full."""
        self.writing_paused = True
        if self.handler is not None:
            self.handler.writing_paused()

    def resume_writing(self) -> None:
        """Report to the handler that the write buffer has room again."""
        self.writing_paused = False
        if self.handler is not None:
            self.handler.writing_resumed()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - handlers need no reason
        """Report to the handler, once, that the connection is closed."""
        self._lose()

    # Overridden by DelayedConnection:

    def _shut(self) -> None:
        self._transport.close()

    def _deliver(self, data: memoryview) -> None:
        # TLS continues to read while closing; that data is dropped.
        if self.handler is not None and self._close_timer is None:
            self.handler.received(data)

    def _lose(self) -> None:
        self._ended = True
        self._transport.close()  # Python 3.10 warns about transports that were not closed explicitly
        if self._close_timer is not None:
            self._close_timer.cancel()
        if self.place is not None:
            self.place.leave()
        if self.handler is not None:
            self.handler.lost()
        self._gone(self)
