"""Accepts TCP connections. Unlike asyncio's servers, it knows a connection's address before the TLS handshake."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import sys
from collections.abc import Callable

from relay_core.net.tasks import TaskSet
from relay_core.program.descriptors import EXHAUSTED

__all__ = ["Acceptor"]

BACKLOG = 1024
"""Size of the kernel's queue of connections; large enough for many agents that reconnect together."""
UNAVAILABLE = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""Errors that may concern only one of several addresses, e.g. `::1` of `localhost` on a machine without IPv6."""
EXHAUSTED_DELAY = 1.0
"""Seconds until the next attempt if no descriptor is left and none could be freed."""
FREEING_DELAY = 0.01
"""Seconds until the descriptor of a dropped connection is closed."""

logger = logging.getLogger(__name__)


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
                    port = self._bind(family, (address[0], port, *address[2:]))
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

    def _bind(self, family: int, address: tuple[object, ...]) -> int:
        # The protocol number is given explicitly, because asyncio sets TCP_NODELAY only if the accepted socket has that
        # number.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            if os.name == "posix":
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.setblocking(False)
            listening.bind(address)
            listening.listen(BACKLOG)
        except OSError:
            listening.close()
            raise
        self._sockets.append(listening)
        return int(listening.getsockname()[1])

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
