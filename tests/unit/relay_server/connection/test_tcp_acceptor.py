"""Facts about accepting TCP connections."""

import asyncio
import errno
import gc
import socket
import warnings

import pytest

from relay_server.connection.tcp import Acceptor
from tests.support.machine.deadline import DEADLINE


class Accepted:
    """Takes accepted sockets, and plays a system without descriptors."""

    def __init__(self) -> None:
        self.sockets: asyncio.Queue[tuple[socket.socket, str, int]] = asyncio.Queue()
        self.acceptor = Acceptor(self.accepted, lambda: False)

    def accepted(self, connection: socket.socket, host: str, port: int) -> None:
        self.sockets.put_nowait((connection, host, port))


async def test_a_connection_comes_with_its_address() -> None:
    """An accepted socket does not block, is a TCP one (else asyncio delays small writes), and has an address."""
    accepted = Accepted()
    port = await accepted.acceptor.open("127.0.0.1", 0)
    with socket.create_connection(("127.0.0.1", port)) as client:
        connection, *address = await asyncio.wait_for(accepted.sockets.get(), DEADLINE)
        with connection:
            assert list(client.getsockname()) == address
            assert (False, socket.IPPROTO_TCP) == (connection.getblocking(), connection.proto)
    await accepted.acceptor.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


async def test_all_addresses_of_a_host_have_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with several addresses is bound on the same free port on all of them that this machine has."""

    async def look_up(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, 0))
            for host in ("127.0.0.1", "192.0.2.1", "127.0.0.2", "127.0.0.1")
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    accepted = Accepted()
    port = await accepted.acceptor.open("several.test", 0)
    for host in ("127.0.0.1", "127.0.0.2"):
        with socket.create_connection((host, port)):
            connection, _, _ = await asyncio.wait_for(accepted.sockets.get(), DEADLINE)
            connection.close()
    await accepted.acceptor.close()


async def test_a_port_in_use_is_reported() -> None:
    """A port that another socket has is the system's error."""
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(OSError, match=rf"\[Errno {errno.EADDRINUSE}\]"),
    ):
        await Accepted().acceptor.open("127.0.0.1", taken.getsockname()[1])


async def test_a_connection_at_the_moment_of_the_end() -> None:
    """A connection that arrives as the acceptor is closed is closed as well, not left to the garbage collector."""
    accepted = Accepted()
    port = await accepted.acceptor.open("127.0.0.1", 0)
    await asyncio.sleep(0)  # the acceptor waits
    with socket.create_connection(("127.0.0.1", port)), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):  # the event loop has seen the connection, the acceptor has not
            await asyncio.sleep(0)
        await accepted.acceptor.close()
        gc.collect()
    while not accepted.sockets.empty():
        accepted.sockets.get_nowait()[0].close()
    assert [] == [str(found.message) for found in caught]
