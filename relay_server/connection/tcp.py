"""TCP connections with TLS: accepting them, limits until they are authenticated, and their current handler."""

from __future__ import annotations

import asyncio
import errno
import functools
import ipaddress
import logging
import socket
import sys
from collections.abc import Callable
from typing import cast

from relay_core.net.streams.local_server import listening_socket
from relay_core.net.tasks import TaskSet
from relay_core.net.tls import TlsTransport
from relay_core.program.run import EXHAUSTED

logger = logging.getLogger(__name__)


# Limits the connections that are not authenticated yet, per address and in total.
#
# Anyone who can reach the port can open connections and send nothing. Each occupies a descriptor and 15 KiB and, from
# its TLS handshake on, about 90 KiB. Their number is therefore limited, and a new connection replaces the oldest one,
# which has had the most time to authenticate. A connection leaves the budget when its token or rendezvous secret has
# been accepted.

IPV6_SOURCE_BITS = 64
"""An IPv6 host usually has a network of this size to choose its addresses from."""


class Slots:
    """The slots for connections that are not authenticated yet.

    Args:
        total: Maximum number of connections.
        per_source: Maximum number of connections from one source.
    """

    def __init__(self, *, total: int, per_source: int) -> None:
        self._total = total
        self._per_source = per_source
        self._slots: dict[str, dict[object, Callable[[], object]]] = {}
        """Slots of each source, the oldest first: what drops the connection."""

    def __len__(self) -> int:
        return sum(map(len, self._slots.values()))

    def add(self, source: str, drop: Callable[[], object]) -> Callable[[], None]:
        """Take a slot for a new connection, after dropping an old connection if all slots are taken.

        Returns:
            Releases the slot, because the connection is authenticated or closed; repeated calls do nothing.
        """
        if len(self._slots.get(source, ())) >= self._per_source:
            self._evict_from(source)
        elif len(self) >= self._total:
            self.evict()
        slot = object()
        self._slots.setdefault(source, {})[slot] = drop
        return functools.partial(self._release, source, slot)

    def evict(self) -> bool:
        """Drop the oldest connection from the source that has the most connections; return False if there are none."""
        if not self._slots:
            return False
        self._evict_from(max(self._slots, key=lambda source: len(self._slots[source])))
        return True

    def _release(self, source: str, slot: object) -> None:
        slots = self._slots.get(source, {})
        slots.pop(slot, None)
        if not slots:
            self._slots.pop(source, None)

    def _evict_from(self, source: str) -> None:
        oldest, drop = next(iter(self._slots[source].items()))
        self._release(source, oldest)
        drop()


def source_of(host: str) -> str:
    """Return the source of an address: the address itself for IPv4, or its network for IPv6."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address), IPV6_SOURCE_BITS), strict=False).network_address)


# A TCP connection with TLS: a thin driver between asyncio and the connection's current handler.
#
# It transfers bytes, pauses, resumes, closes and aborts; the handler makes the protocol decisions. All connections of a
# server read into one buffer. asyncio fills it and passes it on in the same call, so it is free again when `received`
# returns. Before a handler calls anything else, it must copy the bytes that it keeps (unmasking does that anyway).

READ_BYTES = 128 * 1024
"""Size of the read buffer. Measured: with 64 KiB, throughput is 10 % lower; with 256 KiB, it is the same."""
WRITE_HIGH_WATER = 512 * 1024
WRITE_LOW_WATER = 128 * 1024
"""Sizes of the write buffer at which a writer is paused and resumed, respectively; they limit the memory that a slow
peer uses."""
CLOSE_LIMIT = 30.0
"""Seconds for a peer to receive the last bytes and close TLS; after that, the connection is dropped."""


class Handler:
    """Processes the events of a connection; this one ignores them, and drops what it receives."""

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
        self.handler = Handler()
        self.leave_budget: Callable[[], None] = lambda: None
        """Called when the connection no longer counts as unauthenticated."""
        self.remote: tuple[str, int] = ("", 0)
        """The peer's host and port; set by the server that has accepted the connection."""
        self.reading_paused = False
        self.writing_paused = False
        self._drained = asyncio.Event()
        self._drained.set()

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
        cast("TlsTransport", self._transport).prove()
        self.leave_budget()

    def write(self, data: bytes) -> None:
        """Send bytes; if the connection is closed, drop them."""
        if self.is_open:
            self._transport.write(data)

    async def drain(self) -> None:
        """Wait until the write buffer has room, or the connection is closed."""
        await self._drained.wait()

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
            self._transport.close()

    def abort(self) -> None:
        """Drop the connection now."""
        if not self._ended:
            self._transport.abort()

    # Called by asyncio:

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Report the connection when TLS is established."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER, low=WRITE_LOW_WATER)
        self._made(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Return the server's read buffer."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass the received bytes to the handler."""
        # TLS continues to read while closing; that data is dropped.
        if self._close_timer is None:
            self.handler.received(self._buffer[:nbytes])

    def pause_writing(self) -> None:
        """Report to the handler that the write buffer is full."""
        self.writing_paused = True
        self._drained.clear()
        self.handler.writing_paused()

    def resume_writing(self) -> None:
        """Report to the handler that the write buffer has room again."""
        self.writing_paused = False
        self._drained.set()
        self.handler.writing_resumed()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - handlers need no reason
        """Report to the handler, once, that the connection is closed."""
        self._ended = True
        self._drained.set()
        self._transport.close()  # Python 3.10 warns about transports that were not closed explicitly
        if self._close_timer is not None:
            self._close_timer.cancel()
        self.leave_budget()
        self.handler.lost()
        self._gone(self)


# Accepts TCP connections. Unlike asyncio's servers, it knows a connection's address before the TLS handshake.

BACKLOG = 1024
"""Size of the kernel's queue of connections; large enough for many agents that reconnect together."""
UNAVAILABLE = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""Errors that may concern only one of several addresses, e.g. `::1` of `localhost` on a machine without IPv6."""
EXHAUSTED_DELAY = 1.0
"""Seconds until the next attempt if no descriptor is left and none could be freed."""
FREEING_DELAY = 0.01
"""Seconds until the descriptor of a dropped connection is closed."""


class Acceptor:
    """The listening sockets of a server.

    Args:
        accepted: Called with each new socket, which it then owns, and the peer's host and port.
        starved: Called if no descriptor is left; drops a connection to free one, or returns False.
    """

    def __init__(self, accepted: Callable[[socket.socket, str, int], None], starved: Callable[[], bool]) -> None:
        self._accepted = accepted
        self._starved = starved
        self._sockets: list[socket.socket] = []
        self._tasks = TaskSet()
        self._exhausted = False

    async def open(self, host: str, port: int) -> int:
        """Bind all addresses of a host and accept; return the port.

        Raises:
            OSError: No address could be bound, or one of them is in use.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        unavailable: OSError | None = None
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                try:
                    bound, is_v6_only = (address[0], port, *address[2:]), family == socket.AF_INET6
                    self._sockets.append(listening_socket(family, bound, BACKLOG, is_v6_only=is_v6_only))
                    port = int(self._sockets[-1].getsockname()[1])
                except OSError as error:
                    if error.errno not in UNAVAILABLE:
                        raise
                    unavailable = error
            if unavailable is not None and not self._sockets:
                raise unavailable
        except OSError:
            self._close_sockets()
            raise
        for listening in self._sockets:
            self._tasks.spawn(self._accept_all(listening), name=f"accept on port {port}")
        return port

    async def close(self) -> None:
        """Stop accepting; connections in the kernel's queue are reset."""
        await self._tasks.cancel_all()
        self._close_sockets()

    async def _accept_all(self, listening: socket.socket) -> None:
        while True:
            try:
                accepted, address = await _accept(listening)
            except OSError as error:
                await self._recover(error)
                continue
            self._exhausted = False
            self._accepted(accepted, str(address[0]), int(address[1]))
            await asyncio.sleep(0)  # `_accept` does not yield while connections are waiting

    async def _recover(self, error: OSError) -> None:
        if error.errno not in EXHAUSTED:  # for instance ECONNABORTED: the peer has left the queue
            await asyncio.sleep(0)
            return
        if not self._exhausted:
            self._exhausted = True
            logger.warning("cannot accept a connection: %s; dropping unauthenticated connections", error.strerror)
        await asyncio.sleep(FREEING_DELAY if self._starved() else EXHAUSTED_DELAY)

    def _close_sockets(self) -> None:
        for listening in self._sockets:
            listening.close()
        self._sockets.clear()


async def _accept(listening: socket.socket) -> tuple[socket.socket, tuple[str, int]]:
    """Accept a connection.

    asyncio's `sock_accept` loses the socket, which nobody then closes, if it is cancelled just after it has accepted a
    connection.
    """
    loop = asyncio.get_running_loop()
    if sys.platform == "win32":  # its event loop does not report that a socket is readable
        return await loop.sock_accept(listening)
    while True:
        try:
            accepted, address = listening.accept()
        except BlockingIOError:
            readable = asyncio.Event()
            loop.add_reader(listening, readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(listening)
        else:
            accepted.setblocking(False)
            return accepted, address
