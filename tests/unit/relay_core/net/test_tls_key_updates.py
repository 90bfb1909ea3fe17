"""Facts about peers that send TLS records without plaintext: key updates, each of which costs more than it weighs."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from relay_core.net.relay_tls import client_tls
from relay_core.net.tls import MAX_BARREN, RECORD_OVERHEAD, UNPROVEN_READ, TlsMachine, TlsTransport
from relay_server.config.certificates import prepare, server_context
from relay_server.config.model import TlsSettings
from tests.support.machine.deadline import DEADLINE
from tests.support.network.key_updates import KEY_UPDATE_SIZE, RecordWriter, dial_records

TOO_MANY = MAX_BARREN // KEY_UPDATE_SIZE + 1
"""Key updates that are more than a connection may have without plaintext."""


PART = bytes(MAX_BARREN // 8)
"""Plaintext of one record; four of them pay for half of the limit."""


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
async def serving(receiver: Receiver, tls: Path, *, is_proven: bool) -> AsyncIterator[tuple[CountingTransport, int]]:
    """Run a server for one connection; yield its transport and port."""
    made = prepare(TlsSettings(directory=tls), ["localhost"])
    machine = TlsMachine(server_context(made), server_side=True)
    transport = CountingTransport(receiver, machine, is_proven=is_proven)
    server = await asyncio.get_running_loop().create_server(lambda: transport, "127.0.0.1", 0)
    try:
        yield transport, server.sockets[0].getsockname()[1]
    finally:
        transport.abort()
        server.close()
        await asyncio.wait_for(receiver.lost.wait(), DEADLINE)


def trusting(tls: Path) -> ssl.SSLContext:
    """Return a context that trusts the server."""
    return client_tls(str(prepare(TlsSettings(directory=tls), ["localhost"]).ca))


@contextlib.asynccontextmanager
async def connected(receiver: Receiver, directory: Path, tls: Path, *, is_proven: bool) -> AsyncIterator[Connected]:
    """Connect a client that makes its own records."""
    async with serving(receiver, tls, is_proven=is_proven) as (transport, port):
        connection, records = await asyncio.to_thread(dial_records, port, trusting(tls), directory / "keys")
        with connection:
            yield Connected(connection, records, transport)


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
    """Any number of key updates is accepted if as much plaintext follows."""
    receiver = Receiver()
    async with connected(receiver, tmp_path, tls_directory, is_proven=False) as peer:
        peer.server.prove()
        for turn in range(4):
            updates = peer.records.key_updates(TOO_MANY // 3)
            await peer.send(updates + b"".join(peer.records.data(PART) for _ in range(4)))
            await receiver.has(4 * PART * (turn + 1))


async def test_a_little_plaintext_pays_for_few_key_updates(tmp_path: Path, tls_directory: Path) -> None:
    """A proven peer with a few bytes of plaintext between long series of key updates is dropped."""
    receiver = Receiver()
    async with connected(receiver, tmp_path, tls_directory, is_proven=True) as peer:
        for _ in range(4):
            await peer.send(peer.records.key_updates(TOO_MANY // 2) + peer.records.data(b"tiny"))
        await asyncio.wait_for(receiver.lost.wait(), DEADLINE)


@pytest.mark.parametrize("size", [1, 2, 6])
async def test_tiny_records_are_never_too_many(size: int, tmp_path: Path, tls_directory: Path) -> None:
    """Records of a few bytes are accepted in any number, although most of their bytes are not plaintext."""
    receiver = Receiver()
    async with connected(receiver, tmp_path, tls_directory, is_proven=True) as peer:
        number = 4 * MAX_BARREN // (RECORD_OVERHEAD - 10)
        await peer.send(b"".join(peer.records.data(b"x" * size) for _ in range(number)))
        await receiver.has(b"x" * size * number)


async def test_tiny_records_of_old_ciphers_are_never_too_many(tls_directory: Path) -> None:
    """Records of a byte are accepted in any number with TLS 1.2 and AES-CBC, which adds most to them."""
    receiver, number = Receiver(), MAX_BARREN // 32
    context = trusting(tls_directory)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-ECDSA-AES256-SHA384:ECDHE-RSA-AES256-SHA384")

    def dial(port: int) -> ssl.SSLSocket:
        connection = socket.create_connection(("127.0.0.1", port), DEADLINE)
        tls = context.wrap_socket(connection, server_hostname="localhost")
        with contextlib.suppress(ConnectionError):
            for _ in range(number):
                tls.send(b"x")
        return tls

    async with serving(receiver, tls_directory, is_proven=True) as (_, port):
        with await asyncio.to_thread(dial, port):
            await receiver.has(b"x" * number)


async def test_reads_are_small_after_many_key_updates(tmp_path: Path, tls_directory: Path) -> None:
    """A proven peer is read in small parts from the time it has sent many key updates until plaintext follows."""
    receiver = Receiver()
    async with connected(receiver, tmp_path, tls_directory, is_proven=True) as peer:
        await peer.send(peer.records.key_updates(TOO_MANY * 3 // 4) + peer.records.data(b"x"))
        await receiver.has(b"x")
        assert UNPROVEN_READ == len(peer.server.get_buffer(-1))
        await peer.send(b"".join(peer.records.data(PART) for _ in range(4)))
        await receiver.has(b"x" + 4 * PART)
        assert UNPROVEN_READ < len(peer.server.get_buffer(-1))


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
        for turn in range(3):
            await receiver.has(b"x" + 4 * PART * turn)
            updates = peer.records.key_updates(TOO_MANY // 2)
            await peer.send(updates + b"".join(peer.records.data(PART) for _ in range(4)))
        await asyncio.wait_for(receiver.lost.wait(), DEADLINE)
