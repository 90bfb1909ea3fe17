"""One TCP connection with TLS: a thin driver between asyncio and whoever has the connection at the moment.

It moves bytes, pauses, resumes, closes and aborts, and decides nothing. All connections of a server read into one
buffer: asyncio fills it and hands it over in the same call, so it is free again when `received` returns. Therefore a
handler copies what it wants to keep (unmasking does that anyway) before it calls anything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

__all__ = ["READ_BYTES", "Connection", "Handler"]

READ_BYTES = 128 * 1024
"""Measured: 64 KiB costs a tenth of the throughput, and from 256 KiB on memory management costs more than it saves."""
WRITE_HIGH_WATER = 512 * 1024
WRITE_LOW_WATER = 128 * 1024
"""A writer is paused and resumed at these; together with one read they bound the memory of a slow peer."""
CLOSE_LIMIT = 30.0
"""Seconds for a peer to take the last bytes and end TLS; afterwards the connection is dropped."""


class Handler(Protocol):
    """Has a connection at the moment."""

    def received(self, data: memoryview) -> None:
        """Bytes came; `data` is valid during this call, and only until another connection is touched."""

    def writing_paused(self) -> None:
        """The peer takes less than it is given."""

    def writing_resumed(self) -> None:
        """The peer has caught up."""

    def lost(self) -> None:
        """The connection is gone, for whatever reason; nothing else will be called."""


class Connection(asyncio.BufferedProtocol):
    """See the module's docstring.

    Args:
        buffer: The server's read buffer.
        made: Called with the connection when TLS is up; it sets `handler`.
        gone: Called when it is lost, after the handler.
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
        self.remote: tuple[str, int] = ("", 0)
        self.reading_paused = False
        self.writing_paused = False

    def __repr__(self) -> str:
        state = "ended" if self._ended else "open"
        paused = "".join(f" {what}-paused" for what in ("reading", "writing") if getattr(self, f"{what}_paused"))
        return f"<Connection {self.remote[0]}:{self.remote[1]} {state}{paused}>"

    # What the handler does:

    @property
    def is_open(self) -> bool:
        """Whether writing makes sense."""
        return not (self._ended or self._transport.is_closing())

    @property
    def buffered(self) -> int:
        """Bytes that were written and not yet taken by the kernel."""
        return 0 if self._ended else self._transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        """Send bytes in order, or drop them if the connection is closed."""
        if self.is_open:
            self._transport.write(data)

    def pause_reading(self) -> None:
        """Take no more from the peer."""
        if not self.reading_paused and self.is_open:
            self.reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take bytes again."""
        if self.reading_paused and self.is_open:
            self.reading_paused = False
            self._transport.resume_reading()

    def close(self) -> None:
        """Send what was written, then end the connection; what still comes in is dropped."""
        if self.is_open and self._close_timer is None:
            self.resume_reading()  # the peer's end of TLS would go unseen
            self._close_timer = self._loop.call_later(CLOSE_LIMIT, self.abort)
            self._shut()

    def abort(self) -> None:
        """Drop the connection now."""
        if not self._ended:
            self._transport.abort()

    # What asyncio does:

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """TLS is up."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER, low=WRITE_LOW_WATER)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.remote = (str(peer[0]), int(peer[1]))
        self._made(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Return where to read to."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes were read."""
        self._deliver(self._buffer[:nbytes])

    def pause_writing(self) -> None:
        """Pass on that the peer is slow."""
        self.writing_paused = True
        if self.handler is not None:
            self.handler.writing_paused()

    def resume_writing(self) -> None:
        """Pass on that the peer has caught up."""
        self.writing_paused = False
        if self.handler is not None:
            self.handler.writing_resumed()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - how it ended does not matter
        """Tell whoever has the connection, once."""
        self._lose()

    # What a connection with delays does differently:

    def _shut(self) -> None:
        self._transport.close()

    def _deliver(self, data: memoryview) -> None:
        # While closing, TLS may still read; nobody wants it.
        if self.handler is not None and self._close_timer is None:
            self.handler.received(data)

    def _lose(self) -> None:
        self._ended = True
        self._transport.close()  # it is over, but Python 3.10 complains about transports that nobody closed
        if self._close_timer is not None:
            self._close_timer.cancel()
        if self.handler is not None:
            self.handler.lost()
        self._gone(self)
