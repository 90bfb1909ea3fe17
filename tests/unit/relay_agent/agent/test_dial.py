"""Facts about how the agent connects a client to a target."""

import asyncio
import contextlib
import re
import socket
import struct
from dataclasses import dataclass

import pytest

from relay_agent.agent import dial, layers
from relay_agent.agent.dial import serve_stream
from relay_agent.agent.port_targets import PortTarget, parse_targets
from relay_core.dap.framing import encode
from relay_core.errors import ConnectionLost, ProtocolError
from relay_core.net.streams.bridge import Traffic
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.other_user import listening_stranger, needs_second_user
from tests.support.machine.ports import free_port
from tests.support.machine.streams import echo, local_server, read_all, stream_pair

INITIALIZE = b"Content-Length: 2\r\n\r\n{}"
TERMINATED = encode({"seq": 1, "type": "event", "event": "terminated"})


async def greeting_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Speak first, as debugpy's adapter does, then echo."""
    writer.write(b"hello")
    await echo(reader, writer)


@pytest.mark.parametrize("address", ["[::1]", "127.0.0.2"])
async def test_a_target_on_another_loopback_address_is_connected_to(address: str) -> None:
    """A program that listens on another loopback address than 127.0.0.1 is reached at that address."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(100))
        writer.close()

    ours, theirs = stream_pair()
    host = address.strip("[]")
    try:
        server = await asyncio.start_server(answer, host, 0)
    except OSError as error:
        pytest.skip(f"this machine has no {host}: {error}")
    async with server:
        port = server.sockets[0].getsockname()[1]
        (target,) = parse_targets([f"5678:{address}:{port}"]).values()
        serving = asyncio.ensure_future(serve_stream(target, theirs, Traffic()))
        await ours.write(b"ping")
        await ours.write_eof()
        assert b"ping" == await read_all(ours)
        await serving
    with pytest.raises(ConnectionLost, match=f"nothing is listening on {re.escape(f'{address}:{port}')}"):
        await serve_stream(target, stream_pair()[1], Traffic())


async def test_bytes_go_both_ways() -> None:
    """A raw target gets the client's bytes and its answers go back, until both have ended."""
    ours, theirs = stream_pair()
    traffic = Traffic()
    async with local_server(echo) as (port, _):
        serving = asyncio.ensure_future(serve_stream(PortTarget(1, port), theirs, traffic))
        await ours.write(b"ping")
        await ours.write_eof()
        assert await read_all(ours) == b"ping"
        await serving
    assert (4, 4) == (traffic.received, traffic.sent)


async def test_debugger_that_closes_its_connection() -> None:
    """The stream of a debugger ends with the debugger's connection, although its client keeps its direction open."""

    async def disconnect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(TERMINATED)
        await reader.read(100)
        writer.close()

    ours, theirs = stream_pair()
    async with local_server(disconnect) as (port, _):
        serving = asyncio.ensure_future(serve_stream(PortTarget(1, port, dap_only=True), theirs, Traffic()))
        await ours.write(INITIALIZE)
        assert TERMINATED == await read_all(ours)
        await asyncio.wait_for(serving, DEADLINE)


async def test_a_server_may_speak_first() -> None:
    """If the client of a raw target sends nothing, the agent connects to the target after a short delay."""
    ours, theirs = stream_pair()
    async with local_server(greeting_server) as (port, _):
        serving = asyncio.ensure_future(serve_stream(PortTarget(1, port), theirs, Traffic()))
        assert await ours.read() == b"hello"
        await ours.write_eof()
        assert await read_all(ours) == b""
        await serving


@pytest.mark.parametrize("dap_only", [False, True])
async def test_a_client_that_has_gone_is_not_dialled_for(dap_only: bool) -> None:
    """A connection that is opened and dropped at once never reaches the target."""
    ours, theirs = stream_pair()
    async with local_server(echo) as (port, connections):
        await ours.write_eof()
        with pytest.raises(ConnectionLost, match="disconnected before"):
            await serve_stream(PortTarget(1, port, dap_only=dap_only), theirs, Traffic())
    assert [] == connections


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", b"Content-Type: x\r\n"])
async def test_strangers_do_not_reach_a_debug_adapter(first: bytes) -> None:
    """Bytes that are not DAP never reach a debug target."""
    ours, theirs = stream_pair()
    async with local_server(greeting_server) as (port, connections):
        await ours.write(first)
        with pytest.raises(ProtocolError, match="only programs that use the Debug Adapter Protocol can connect"):
            await serve_stream(PortTarget(1, port, dap_only=True), theirs, Traffic())
        with pytest.raises(ConnectionLost):
            await ours.read()
    assert [] == connections


async def test_a_silent_client_does_not_reach_a_debug_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of a debug adapter that sends nothing is dropped after the time limit."""
    monkeypatch.setattr(dial, "FIRST_BYTES_TIMEOUT", 0.05)
    _, theirs = stream_pair()
    async with local_server(greeting_server) as (port, connections):
        with pytest.raises(ProtocolError):
            await serve_stream(PortTarget(1, port, dap_only=True), theirs, Traffic())
    assert [] == connections


async def test_the_first_message_may_come_in_pieces() -> None:
    """DAP is recognised however its first bytes are cut."""
    ours, theirs = stream_pair()
    async with local_server(greeting_server) as (port, _):
        serving = asyncio.ensure_future(serve_stream(PortTarget(1, port, dap_only=True), theirs, Traffic()))
        for byte in INITIALIZE[:14]:
            await ours.write(bytes([byte]))
        await ours.write(INITIALIZE[14:])
        await ours.write_eof()
        assert b"hello" + INITIALIZE == await read_all(ours)
        await serving


async def test_the_greeting_is_read_before_the_adapter_is_closed() -> None:
    """If a debugger disconnects immediately, the agent keeps debugpy's socket open until its greeting."""
    closed_early = asyncio.Event()

    async def slow_greeting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(INITIALIZE))
        await asyncio.sleep(0.05)
        if reader.at_eof():
            closed_early.set()
        writer.write(b"hello")
        await reader.read()

    ours, theirs = stream_pair()
    async with local_server(slow_greeting) as (port, connections):
        await ours.write(INITIALIZE)
        await ours.write_eof()
        await serve_stream(PortTarget(1, port, dap_only=True), theirs, Traffic())
    assert [1] == connections
    assert not closed_early.is_set()


@pytest.mark.parametrize("how", ["closed", "broken"])
async def test_all_of_the_greeting_is_read_before_the_adapter_is_closed(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a debugger disconnects during debugpy's greeting, debugpy sees that only after its greeting."""
    monkeypatch.setattr(layers, "GREETING_LIMIT", 3600.0)

    async def greeting_in_parts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(INITIALIZE))
        writer.write(b'{"event": "output"} {"event": "debugpy')
        await left.wait()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(reader.read(), 0.1)
        writer.write(b'Sockets"}')
        assert b"" == await asyncio.wait_for(reader.read(), DEADLINE)
        greeted.set()

    left, greeted = asyncio.Event(), asyncio.Event()
    ours, theirs = stream_pair()
    async with local_server(greeting_in_parts) as (port, _):
        await ours.write(INITIALIZE)
        serving = asyncio.ensure_future(serve_stream(PortTarget(1, port, dap_only=True), theirs, Traffic()))
        await ours.read()
        if how == "closed":
            await ours.write_eof()
        else:
            ours.abort()
        left.set()
        await asyncio.wait_for(greeted.wait(), DEADLINE)
        with contextlib.suppress(ConnectionLost):
            await serving


async def test_a_dead_target_is_explained() -> None:
    """A port where nothing listens ends in a sentence, and the client sees a broken stream."""
    ours, theirs = stream_pair()
    async with local_server(echo) as (port, _):
        pass
    await ours.write(INITIALIZE)
    with pytest.raises(ConnectionLost, match="nothing is listening on 127.0.0.1"):
        await serve_stream(PortTarget(1, port), theirs, Traffic())
    with pytest.raises(ConnectionLost):
        await ours.read()


@dataclass(frozen=True)
class MovingTarget(PortTarget):
    """A target whose debugger exits between two attempts to connect; the next one has another port."""

    ports: tuple[int, ...] = ()

    async def locate(self) -> tuple[str, int]:
        port, *rest = self.ports
        object.__setattr__(self, "ports", tuple(rest) or (port,))
        return "127.0.0.1", port


async def test_a_debugger_with_a_new_port_is_found() -> None:
    """If the port refuses the connection, the target is located again before the next attempt."""
    ours, theirs = stream_pair()
    async with local_server(greeting_server) as (port, _):
        target = MovingTarget(1, port, dap_only=True, ports=(free_port(), port))
        serving = asyncio.ensure_future(serve_stream(target, theirs, Traffic()))
        await ours.write(INITIALIZE)
        await ours.write_eof()
        assert b"hello" + INITIALIZE == await asyncio.wait_for(read_all(ours), DEADLINE)
        await serving


@pytest.mark.parametrize(
    ("first", "name"), [(INITIALIZE, "debugpy's adapter"), (b"x", "the connection to the port")], ids=["adapter", "raw"]
)
async def test_a_target_that_breaks_breaks_its_stream(first: bytes, name: str) -> None:
    """If a target resets its connection, as a killed adapter does, the client gets the reason instead of EOF."""

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        linger = struct.pack("ii", 1, 0)  # close with RST instead of FIN
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    ours, theirs = stream_pair()
    async with local_server(reset) as (port, _):
        await ours.write(first)
        with pytest.raises(ConnectionLost):
            await serve_stream(PortTarget(1, port), theirs, Traffic())
    assert theirs.aborted
    with pytest.raises(ConnectionLost, match=f"aborted: {name} failed: Connection reset by peer"):
        await read_all(ours)


async def test_an_editor_may_come_before_the_debugger() -> None:
    """A debug adapter that does not listen yet is dialled until it does; the editor's first request waits."""

    async def adapter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greeting_server(reader, writer)
        writer.close()

    ours, theirs = stream_pair()
    port = free_port()
    serving = asyncio.ensure_future(serve_stream(PortTarget(1, port, dap_only=True), theirs, Traffic()))
    await ours.write(INITIALIZE)
    await asyncio.sleep(0)
    server = await asyncio.start_server(adapter, "127.0.0.1", port)
    async with server:
        await ours.write_eof()
        assert b"hello" + INITIALIZE == await read_all(ours)
        await serving


@dataclass(frozen=True)
class DebuggedProcess(PortTarget):
    """A process of this node, whose debugger listens on a port."""

    is_own = True


async def test_the_debugger_of_a_process_is_connected_to() -> None:
    """A debugger of this user's process is connected to as soon as it has accepted the connection."""
    ours, theirs = stream_pair()
    async with local_server(greeting_server) as (port, _):
        serving = asyncio.ensure_future(serve_stream(DebuggedProcess(1, port, dap_only=True), theirs, Traffic()))
        await ours.write(INITIALIZE)
        await ours.write_eof()
        assert b"hello" + INITIALIZE == await read_all(ours)
        await serving


@needs_second_user
async def test_another_user_cannot_take_the_port_of_a_debugger() -> None:
    """The bytes of a debug client do not reach a program of another user, which has taken the port of a debugger."""
    ours, theirs = stream_pair()
    port = free_port()
    async with listening_stranger(port) as stranger:
        await ours.write(INITIALIZE)
        refused = f"cannot connect to 127.0.0.1:{port}: another user's program accepted the connection"
        with pytest.raises(ConnectionLost, match=refused):
            await serve_stream(DebuggedProcess(1, port, dap_only=True), theirs, Traffic())
        assert b"Content-Length" not in await asyncio.wait_for(stranger.readline(), DEADLINE)
