"""Facts about TLS connections: the machine, and the transport that runs it, against asyncio's own TLS."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.net.relay_tls import client_tls
from relay_core.net.session.tunnel_certificates import TunnelIdentity
from relay_core.net.tls import TlsMachine, TlsTransport
from relay_core.tunnel.outcomes import Role
from relay_server.config.certificates import prepare, server_context
from relay_server.config.model import TlsSettings
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.streams import echo, local_server

CLIENT, AGENT = (TunnelIdentity(role, bytes(range(32))).context for role in (Role.CLIENT, Role.AGENT))
BULK = bytes(range(256)) * 4096


def connected(left: TlsMachine, right: TlsMachine) -> tuple[TlsMachine, TlsMachine]:
    """Perform the handshake of two machines."""
    while not (left.is_open and right.is_open):
        for machine, other in ((left, right), (right, left)):
            if not machine.is_open:
                machine.shake_hands()
            if data := machine.data_to_send():
                other.receive_data(data)
    return left, right


def machines() -> tuple[TlsMachine, TlsMachine]:
    """Return the client's end and the server's."""
    return connected(TlsMachine(CLIENT, server_side=False), TlsMachine(AGENT, server_side=True))


@given(
    messages=st.lists(st.binary(max_size=40_000), max_size=5),
    cuts=st.lists(st.integers(1, 50_000), max_size=6),
    size=st.integers(1, 70_000),
)
def test_plaintext_survives_any_cutting(messages: list[bytes], cuts: list[int], size: int) -> None:
    """What one machine encrypts, the other returns, however the ciphertext is cut and however small the buffer is."""
    for sender, receiver in (machines(), machines()[::-1]):
        received, buffer = b"", memoryview(bytearray(size))
        for message in messages:
            sender.write(message)
        ciphertext = sender.data_to_send()
        for cut in [*cuts, max(1, len(ciphertext))]:
            receiver.receive_data(ciphertext[:cut])
            ciphertext = ciphertext[cut:]
            while taken := receiver.read_into(buffer):
                received += buffer[:taken]
        receiver.receive_data(ciphertext)
        received += receiver.read()
        assert b"".join(messages) == received


def test_a_close_notify_is_sent_once() -> None:
    """Plaintext before a close_notify is returned, nothing follows it, and a second `close` sends nothing."""
    client, agent = machines()
    client.write(b"last words")
    client.close()
    agent.receive_data(client.data_to_send())
    client.close()
    assert b"" == client.data_to_send()
    assert b"last words" == agent.read()
    assert agent.close_received
    assert b"" == agent.read()
    assert (agent.is_open, agent.close_sent) == (True, False)


class Recorder(asyncio.BufferedProtocol):
    """Keeps what it receives."""

    def __init__(self) -> None:
        self.received = b""
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.paused = False
        self._buffer = memoryview(bytearray(10_000))  # less than a record, so that one is delivered in parts
        self._waiting: tuple[int, asyncio.Event] | None = None

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]
        if self._waiting is not None and len(self.received) >= self._waiting[0]:
            self._waiting[1].set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False

    async def has(self, size: int) -> bytes:
        """Return what was received when it is at least `size` bytes."""
        self._waiting = (size, asyncio.Event())
        if len(self.received) < size:
            await asyncio.wait_for(self._waiting[1].wait(), DEADLINE)
        return self.received


@pytest.fixture
def server_tls(tls_directory: Path) -> ssl.SSLContext:
    """A context for servers on localhost."""
    return server_context(prepare(TlsSettings(directory=tls_directory), ["localhost"]))


@pytest.fixture
def trusted(tls_directory: Path) -> ssl.SSLContext:
    """A client context that trusts the test CA."""
    return client_tls(str(prepare(TlsSettings(directory=tls_directory), ["localhost"]).ca))


async def dialled(port: int, protocol: asyncio.BufferedProtocol, context: ssl.SSLContext) -> TlsTransport:
    """Return a transport whose handshake is in progress."""
    transport = TlsTransport(protocol, TlsMachine(context, server_side=False, server_hostname="localhost"))
    await asyncio.get_running_loop().create_connection(lambda: transport, "127.0.0.1", port)
    return transport


@contextlib.asynccontextmanager
async def own_server(context: ssl.SSLContext, protocol: asyncio.BufferedProtocol) -> AsyncIterator[int]:
    """Serve one connection with `TlsTransport`."""
    server = await asyncio.get_running_loop().create_server(
        lambda: TlsTransport(protocol, TlsMachine(context, server_side=True)), "127.0.0.1", 0
    )
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_of_other_servers(
    server_tls: ssl.SSLContext, trusted: ssl.SSLContext, version: ssl.TLSVersion
) -> None:
    """A megabyte goes to a server that uses asyncio's TLS and back, and both sides then close."""
    server_tls.maximum_version = version
    async with local_server(echo, tls=server_tls) as (port, _):
        protocol = Recorder()
        transport = await dialled(port, protocol, trusted)
        await transport.established
        transport.write(BULK)
        assert BULK == await protocol.has(len(BULK))
        transport.close()
        await asyncio.wait_for(protocol.lost, DEADLINE)


async def test_a_server_of_other_clients(server_tls: ssl.SSLContext, trusted: ssl.SSLContext) -> None:
    """A client that uses asyncio's TLS gets what was written before the close, and then EOF."""

    class Greeter(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, TlsTransport)
            transport.write(BULK)
            transport.close()
            transport.write(b"dropped")

    protocol = Greeter()
    async with own_server(server_tls, protocol) as port:
        reader, writer = await asyncio.open_connection("localhost", port, ssl=trusted)
        assert BULK == await asyncio.wait_for(reader.read(), DEADLINE)
        writer.close()
        await asyncio.wait_for(protocol.lost, DEADLINE)


async def test_data_that_arrives_after_close_is_dropped(server_tls: ssl.SSLContext, trusted: ssl.SSLContext) -> None:
    """While the peer has not answered the close_notify, its data is read, so that it can answer, and dropped."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(1))
        writer.write(BULK)
        await reader.read()

    async with local_server(serve, tls=server_tls) as (port, _):
        protocol = Recorder()
        transport = await dialled(port, protocol, trusted)
        await transport.established
        transport.close()
        assert transport.is_closing()
        await asyncio.wait_for(protocol.lost, DEADLINE)
        assert b"" == protocol.received


async def test_a_peer_that_closes_without_close_notify(server_tls: ssl.SSLContext, trusted: ssl.SSLContext) -> None:
    """The end of TCP ends the connection too."""

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with local_server(serve, tls=server_tls) as (port, _):
        protocol = Recorder()
        await (await dialled(port, protocol, trusted)).established
        await asyncio.wait_for(protocol.lost, DEADLINE)


async def test_a_closed_connection_can_be_used(server_tls: ssl.SSLContext, trusted: ssl.SSLContext) -> None:
    """Before the end is noticed, a protocol may write, pause, resume, set limits, close and abort."""

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with local_server(serve, tls=server_tls) as (port, _):
        protocol = Recorder()
        transport = await dialled(port, protocol, trusted)
        await transport.established
        await asyncio.wait_for(protocol.lost, DEADLINE)
        transport.set_write_buffer_limits(high=1)
        transport.write(b"late")
        transport.pause_reading()
        transport.resume_reading()
        transport.close()
        transport.abort()
        assert 0 == transport.get_write_buffer_size()


async def test_a_slow_peer_pauses_the_writer(server_tls: ssl.SSLContext, trusted: ssl.SSLContext) -> None:
    """The protocol is paused while TCP does not accept bytes, and resumed when the peer reads again."""
    may_read = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await may_read.wait()
        await reader.readexactly(16 * len(BULK))
        writer.write(b"!")

    async with local_server(serve, tls=server_tls) as (port, _):
        protocol = Recorder()
        transport = await dialled(port, protocol, trusted)
        await transport.established
        transport.set_write_buffer_limits(high=len(BULK))
        for _ in range(16):
            transport.write(BULK)
        assert protocol.paused
        assert transport.get_write_buffer_size() > len(BULK)
        may_read.set()
        assert b"!" == await protocol.has(1)
        assert not protocol.paused
        transport.abort()


async def test_a_handshake_that_fails(server_tls: ssl.SSLContext) -> None:
    """A certificate that is not trusted is the error of the handshake, and the peer learns of it from an alert."""
    server = Recorder()
    async with own_server(server_tls, server) as port:
        protocol = Recorder()
        transport = await dialled(port, protocol, client_tls(environ={}))
        with pytest.raises(ssl.SSLCertVerificationError):
            await transport.established
        assert not protocol.lost.done()


async def test_a_peer_that_leaves_during_the_handshake(trusted: ssl.SSLContext) -> None:
    """A connection that ends before TLS is established is reset, by the name of its error."""

    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100_000)

    async with local_server(leave) as (port, _):
        with pytest.raises(ConnectionResetError):
            await (await dialled(port, Recorder(), trusted)).established


async def test_bytes_that_are_not_tls_end_the_connection(server_tls: ssl.SSLContext, trusted: ssl.SSLContext) -> None:
    """After the handshake, a record that cannot be decrypted drops the connection, and nothing of it is delivered."""
    protocol = Recorder()
    async with local_server(echo, tls=server_tls) as (port, _):
        transport = await dialled(port, protocol, trusted)
        await transport.established
        buffer = transport.get_buffer(-1)
        forged = b"\x17\x03\x03\x00\x20" + bytes(32)
        buffer[: len(forged)] = forged
        transport.buffer_updated(len(forged))
        await asyncio.wait_for(protocol.lost, DEADLINE)
    assert b"" == protocol.received


class Below(asyncio.Transport):
    """A transport that shows whether it is being read from."""

    def __init__(self) -> None:
        super().__init__()
        self.is_reading = True
        self.sent = b""

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data


@pytest.mark.parametrize("is_paused", [True, False])
async def test_a_busy_connection_lets_others_read(is_paused: bool) -> None:
    """After a read that fills the buffer, the next one is in a later iteration; a protocol that pauses stays paused."""
    below, protocol, peer = Below(), Recorder(), TlsMachine(CLIENT, server_side=False)
    transport = TlsTransport(protocol, TlsMachine(AGENT, server_side=True))
    transport.connection_made(below)
    buffer = transport.get_buffer(-1)

    def received(data: bytes) -> None:
        buffer[: len(data)] = data
        transport.buffer_updated(len(data))

    while not peer.is_open:
        peer.shake_hands()
        received(peer.data_to_send())
        peer.receive_data(below.sent)
        below.sent = b""
    peer.write(BULK)
    ciphertext = peer.data_to_send()
    received(ciphertext[: len(buffer) - 1])
    assert below.is_reading
    received(ciphertext[len(buffer) - 1 :][: len(buffer)])
    assert not below.is_reading
    transport.pause_reading()
    if not is_paused:
        transport.resume_reading()
        assert not below.is_reading
    await asyncio.sleep(0)
    assert is_paused != below.is_reading
    assert len(protocol.received) > len(buffer)


async def test_tls_inside_tls(server_tls: ssl.SSLContext, trusted: ssl.SSLContext) -> None:
    """A transport can run on another one, as behind a proxy with an https URL, in both directions and to the end."""
    inner_server, protocol = Recorder(), Recorder()
    outer_server = TlsTransport(inner_server, TlsMachine(AGENT, server_side=True))
    async with own_server(server_tls, outer_server) as port:
        inner = TlsTransport(protocol, TlsMachine(CLIENT, server_side=False))
        outer = await dialled(port, inner, trusted)
        await inner.established
        inner.write(BULK)
        assert BULK == await inner_server.has(len(BULK))
        outer_server.write(BULK)
        assert BULK == await protocol.has(len(BULK))
        outer_server.close()
        await asyncio.wait_for(protocol.lost, DEADLINE)
        await asyncio.wait_for(inner_server.lost, DEADLINE)
        assert outer.is_closing()
