"""Accepts connections on a port of this machine, and checks each of them before the next is accepted.

A server of asyncio accepts up to a hundred connections, and uvloop any number, before a protocol receives the first of
them. Another user of the machine could therefore use up the file descriptors of a program that refuses each of these
connections. A `LocalServer` closes a refused connection immediately, so that there is never more than one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import struct
from collections.abc import Callable

from relay_core.net.tasks import TaskSet

BACKLOG = 100
"""Number of connections that the kernel completes before they are accepted, as in asyncio."""
ACCEPTS_PER_TURN = 16
"""Number of connections that are checked before the event loop continues with other work."""
RETRY_DELAY = 1.0
"""Seconds until connections are accepted again after an error such as EMFILE, as in asyncio."""
_RESET = struct.pack("@ii", 1, 0)
"""The value of SO_LINGER with which `close` sends a reset."""


class LocalServer:
    """A listening port of this machine; it accepts connections once `serve` is called, as `open` does.

    Args:
        listener: The listening socket; closed by `close`.
        protocol: Returns the protocol for an accepted connection.
        admits: Whether to keep a connection that was just accepted; it must not raise.
    """

    def __init__(
        self,
        listener: socket.socket,
        protocol: Callable[[], asyncio.BaseProtocol],
        admits: Callable[[socket.socket], bool],
    ) -> None:
        self.port = int(listener.getsockname()[1])
        self._listener = listener
        self._protocol = protocol
        self._admits = admits
        self._loop = asyncio.get_running_loop()
        self._connecting = TaskSet()
        self._retry: asyncio.TimerHandle | None = None
        self._server: asyncio.Server | None = None
        """asyncio's server, with an event loop of Windows, which does not wait for sockets to become readable."""

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        protocol: Callable[[], asyncio.BaseProtocol],
        admits: Callable[[socket.socket], bool] = lambda _connection: True,
    ) -> LocalServer:
        """Listen on a port.

        Args:
            host: The IP address to listen on.
            port: The port; 0 for a free one.
            protocol: Returns the protocol for an accepted connection.
            admits: Whether to keep a connection that was just accepted; it must not raise. Not called on Windows, which
                does not show who has connected.

        Raises:
            OSError: the port is not available.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return await cls(listening_socket(family, (host, port), BACKLOG), protocol, admits).serve()

    async def serve(self) -> LocalServer:
        """Accept connections; return the server itself."""
        self._listener.setblocking(False)
        try:
            self._loop.add_reader(self._listener, self._accept)
        except NotImplementedError:  # an event loop of Windows
            self._server = await self._loop.create_server(self._protocol, sock=self._listener)
        return self

    async def __aenter__(self) -> LocalServer:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        self.close()
        await self.wait_closed()

    def close(self) -> None:
        """Stop listening, if that has not happened already; accepted connections stay open."""
        if self._server is not None:
            self._server.close()
        elif self._listener.fileno() >= 0:
            if self._retry is not None:
                self._retry.cancel()
            self._loop.remove_reader(self._listener)
            self._listener.close()

    async def wait_closed(self) -> None:
        """Wait until no further connection reaches a protocol."""
        await self._connecting.cancel_all()

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            if not self._admits(connection):
                _reset(connection)
                continue
            connecting = self._loop.connect_accepted_socket(self._protocol, connection)
            task = self._connecting.spawn(connecting, name=f"new connection to port {self.port}")
            task.add_done_callback(functools.partial(_close_if_failed, connection))

    def _pause(self, error: OSError) -> None:
        """Stop accepting for a moment: the connections that wait would otherwise keep the event loop busy."""
        self._loop.call_exception_handler({"message": f"port {self.port} cannot accept", "exception": error})
        self._loop.remove_reader(self._listener)
        self._retry = self._loop.call_later(RETRY_DELAY, self._loop.add_reader, self._listener, self._accept)


def listening_socket(
    family: int, address: tuple[object, ...], backlog: int, *, is_v6_only: bool = False
) -> socket.socket:
    """Return a new TCP socket that listens, without blocking, on an address.

    Args:
        family: AF_INET or AF_INET6.
        address: As for `bind`.
        backlog: Number of connections that the kernel completes before they are accepted.
        is_v6_only: Whether `::` leaves out IPv4, for a server that has another socket for it.

    Raises:
        OSError: the address is not available.
    """
    # The protocol number is given, because asyncio sets TCP_NODELAY only if the accepted socket has that number.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # on Windows, the option would permit another program to listen on the same port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_v6_only:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.setblocking(False)
        listener.bind(address)
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener


def _close_if_failed(connection: socket.socket, connecting: asyncio.Task[object]) -> None:
    if connecting.cancelled() or connecting.exception() is not None:  # perhaps before it started
        connection.close()


def _reset(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    connection.close()
