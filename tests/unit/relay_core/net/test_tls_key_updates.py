"""Facts about peers that send TLS records without plaintext: key updates, each of which costs more than it weighs."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from relay_core.net.relay_tls import client_tls
from relay_core.net.tls import MAX_BARREN, UNPROVEN_READ, TlsMachine, TlsTransport
from relay_server.config.certificates import prepare, server_context
from relay_server.config.model import TlsSettings
from tests.support.deadline import DEADLINE
from tests.support.key_updates import KEY_UPDATE_SIZE, RecordWriter, dial_records

TOO_MANY = MAX_BARREN // KEY_UPDATE_SIZE + 1
"""Key updates that are more than a connection may have without plaintext."""


class CountingTransport(TlsTransport):
    """Counts the bytes of the peer that it has processed."""

    processed = 0
    largest = 0

    def buffer_updated(self, nbytes: int) -> None:
        self.processed += nbytes
        self.largest = max(self.largest, nbytes)
        super().buffer_updated(nbytes)


class Receiver(asyncio.BufferedProtocol):
    """The protocol above: keeps what it receives."""

    def __init__(self) -> None:
        self.received = b""
        self.lost = asyncio.Event()
        self.changed = asyncio.Event()
        self._buffer = memoryview(bytearray(65536))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]
        self.changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        self.changed.set()

    async def has(self, expected: bytes) -> None:
        """Wait until this has been received."""
        while self.received != expected:
            assert not self.lost.is_set()
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), DEADLINE)


class Connected:
    """A connection to a server that uses `TlsTransport`."""

    def __init__(self, connection: socket.socket, records: RecordWriter, server: CountingTransport) -> None:
        self.records = records
        self.server = server
        self._connection = connection

    async def send(self, data: bytes) -> None:
        """Send records; if the server has dropped the connection, the rest is lost."""
        with contextlib.suppress(ConnectionError):
            await asyncio.to_thread(self._connection.sendall, data)


@contextlib.asynccontextmanager
async def connected(receiver: Receiver, directory: Path, tls: Path, *, is_proven: bool) -> AsyncIterator[Connected]:
    """Connect a client that makes its own records."""
    made = prepare(TlsSettings(directory=tls), ["localhost"])
    machine = TlsMachine(server_context(made), server_side=True)
    transport = CountingTransport(receiver, machine, is_proven=is_proven)
    server = await asyncio.get_running_loop().create_server(lambda: transport, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    context: ssl.SSLContext = client_tls(str(made.ca))
    connection, records = await asyncio.to_thread(dial_records, port, context, directory / "keys")
    try:
        yield Connected(connection, records, transport)
    finally:
        connection.close()
        transport.abort()
        server.close()
        await asyncio.wait_for(receiver.lost.wait(), DEADLINE)


def interleaved(records: RecordWriter, number: int) -> Iterator[bytes]:
    """Yield a byte of plaintext before each of so many key updates."""
    for _ in range(number):
        yield records.data(b"x")
        yield records.key_updates(1)


async def test_a_stranger_is_dropped_after_a_few_bytes(tmp_path: Path, tls_directory: Path) -> None:
    """Key updates of a peer that has not proven itself end its connection, even with plaintext between them."""
    receiver = Receiver()
    async with connected(receiver, tmp_path, tls_directory, is_proven=False) as peer:
        handshake = peer.server.processed
        await peer.send(b"".join(interleaved(peer.records, TOO_MANY)))
        await asyncio.wait_for(receiver.lost.wait(), DEADLINE)
        assert peer.server.processed - handshake <= MAX_BARREN + len(receiver.received) + UNPROVEN_READ
        assert peer.server.largest <= UNPROVEN_READ


async def test_a_proven_peer_may_update_its_keys(tmp_path: Path, tls_directory: Path) -> None:
    """Any number of key updates is accepted if plaintext follows some of them."""
    receiver = Receiver()
    async with connected(receiver, tmp_path, tls_directory, is_proven=False) as peer:
        peer.server.prove()
        for turn in range(4):
            await peer.send(peer.records.key_updates(TOO_MANY // 3) + peer.records.data(b"x"))
            await receiver.has(b"x" * (turn + 1))


async def test_a_proven_peer_without_plaintext_is_dropped(tmp_path: Path, tls_directory: Path) -> None:
    """Key updates alone end the connection of any peer, such as a relay that an agent has dialled."""
    receiver = Receiver()
    async with connected(receiver, tmp_path, tls_directory, is_proven=True) as peer:
        await peer.send(peer.records.data(b"x"))
        await receiver.has(b"x")
        await peer.send(peer.records.key_updates(TOO_MANY))
        await asyncio.wait_for(receiver.lost.wait(), DEADLINE)


async def test_a_peer_that_reads_no_answers_is_dropped(tmp_path: Path, tls_directory: Path) -> None:
    """The answers to key updates do not accumulate: a peer that reads nothing and sends too many is dropped."""
    receiver = Receiver()
    async with connected(receiver, tmp_path, tls_directory, is_proven=True) as peer:
        await peer.send(peer.records.data(b"x"))
        await receiver.has(b"x")
        peer.server.write(bytes(16 * 1024 * 1024))  # more than the kernel's buffers
        assert peer.server.get_write_buffer_size() > 0
        for turn in range(2, 5):
            await receiver.has(b"x" * (turn - 1))
            await peer.send(peer.records.key_updates(TOO_MANY // 2) + peer.records.data(b"x"))
        await asyncio.wait_for(receiver.lost.wait(), DEADLINE)
