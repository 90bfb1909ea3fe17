"""A websocket client that does exactly what a test requests, right or wrong: own sockets, own framing.

answer = await request(server, "/$hc/myhc?sb-hc-action=connect")          any HTTP request
websocket = await open_websocket(server, "/$hc/myhc?...", headers=[...])   raises NotSwitched unless it is 101
await websocket.send(TEXT, b"hello"); frame = await websocket.read_frame()
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.machine.deadline import DEADLINE

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


@dataclass(frozen=True)
class Answer:
    """An HTTP answer."""

    status: int
    reason: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes = b""


class NotSwitched(Exception):
    """The answer was not 101."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"{answer.status} {answer.reason}")
        self.answer = answer


@dataclass(frozen=True)
class Frame:
    """A frame from the server."""

    opcode: int
    payload: bytes = field(repr=False)
    fin: bool = True
    reserved: int = 0

    @property
    def code(self) -> int:
        """The code of a Close frame."""
        return struct.unpack("!H", self.payload[:2])[0] if self.payload else 1005

    @property
    def reason(self) -> str:
        """The text of a Close frame."""
        return self.payload[2:].decode()


@dataclass(frozen=True)
class Target:
    """Where a relay is: enough to dial it."""

    port: int
    ca_file: Path
    host: str = "localhost"

    def context(self) -> ssl.SSLContext:
        """Return a client context that trusts the relay's CA and nothing else."""
        context = ssl.create_default_context(cafile=str(self.ca_file))
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context


class RawConnection:
    """A TLS connection to the relay."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def dial(cls, target: Target, *, receive_buffer: int | None = None) -> RawConnection:
        """Connect over TCP and TLS; a small `receive_buffer` makes a slow reader felt soon."""
        raw = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        raw.setblocking(False)
        if receive_buffer is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", target.port))
            reader, writer = await asyncio.open_connection(
                sock=raw, ssl=target.context(), server_hostname=target.host, limit=2**18
            )
        except BaseException:
            raw.close()
            raise
        return cls(reader, writer)

    async def ask(self, method: str, path: str, headers: Iterable[tuple[str, str]], body: bytes = b"") -> None:
        """Send a request."""
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "", ""]
        self.writer.write("\r\n".join(lines).encode("latin-1") + body)
        await self.writer.drain()

    async def send_body(self, data: bytes) -> None:
        """Send more of a request's body."""
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, *, bodiless: bool = False) -> Answer:
        """Read an answer with its body, which may be chunked; `bodiless` is for the answer to a HEAD request."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), DEADLINE)
        status_line, *lines = head.decode("latin-1").split("\r\n")[:-2]
        _, status, reason = status_line.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if bodiless or status in {"204", "304"}:
            body = b""
        elif headers.get("transfer-encoding") == "chunked":
            body = b"".join([chunk async for chunk in self.chunks()])
        else:
            body = await asyncio.wait_for(self.reader.readexactly(int(headers.get("content-length", "0"))), DEADLINE)
        return Answer(int(status), reason, headers, body)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the chunks of a body until its end."""
        while size := int(await asyncio.wait_for(self.reader.readline(), DEADLINE), 16):
            yield await asyncio.wait_for(self.reader.readexactly(size), DEADLINE)
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)

    async def read_until_end(self) -> bytes:
        """Return what comes until the relay ends the connection in any way."""
        received = bytearray()
        try:
            while data := await asyncio.wait_for(self.reader.read(65536), DEADLINE):
                received += data
        except (ConnectionError, ssl.SSLError):
            pass
        return bytes(received)

    async def close(self) -> None:
        """Close the connection and wait for it."""
        self.writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await asyncio.wait_for(self.writer.wait_closed(), DEADLINE)

    def abort(self) -> None:
        """Drop the connection."""
        self.writer.transport.abort()

    async def __aenter__(self) -> RawConnection:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.abort()
        await self.close()


class RawWebSocket(RawConnection):
    """A connection after its 101."""

    answered: Answer
    """The 101."""
    sent_headers: list[tuple[str, str]]
    """Those of the request."""

    async def send(self, opcode: int, payload: bytes = b"", *, fin: bool = True, reserved: int = 0) -> None:
        """Send one frame, masked."""
        await self.send_raw(frame(opcode, payload, fin=fin, reserved=reserved))

    async def send_raw(self, data: bytes) -> None:
        """Send bytes that may be no frames at all."""
        self.writer.write(data)
        await self.writer.drain()

    async def send_close(self, code: int = 1000, reason: str = "") -> None:
        """Send a Close frame."""
        await self.send(CLOSE, struct.pack("!H", code) + reason.encode())

    async def read_frame(self, *, limit: float = DEADLINE) -> Frame:
        """Return the next frame.

        Raises:
            asyncio.IncompleteReadError: the relay ended the connection.
        """
        return await asyncio.wait_for(self._read_frame(), limit)

    async def read_message(self) -> tuple[int, bytes]:
        """Return type and payload of the next data message; pings in between are answered."""
        opcode, payload = -1, bytearray()
        while True:
            got = await self.read_frame()
            if got.opcode == PING:
                await self.send(PONG, got.payload)
                continue
            assert got.opcode < CLOSE, f"a Close ({got.code} {got.reason!r}) instead of a message"
            opcode = got.opcode if opcode < 0 else opcode
            payload += got.payload
            if got.fin:
                return opcode, bytes(payload)

    async def _read_frame(self) -> Frame:
        first, second = await self.reader.readexactly(2)
        assert not second & 0x80, "a frame from the server is masked"
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", await self.reader.readexactly(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", await self.reader.readexactly(8))
        payload = await self.reader.readexactly(length)
        return Frame(first & 0x0F, payload, fin=bool(first & 0x80), reserved=first & 0x70)

    async def __aenter__(self) -> RawWebSocket:
        return self


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, reserved: int = 0, mask: bytes = b"\x37\xfa\x21\x3d"):
    """Return a masked frame."""
    length = len(payload)
    head = bytes([opcode | reserved | (0x80 if fin else 0)])
    if length < 126:
        head += bytes([0x80 | length])
    elif length < 65536:
        head += struct.pack("!BH", 0x80 | 126, length)
    else:
        head += struct.pack("!BQ", 0x80 | 127, length)
    return head + mask + masked(payload, mask)


def masked(payload: bytes, mask: bytes) -> bytes:
    """Return payload XOR mask, by the book."""
    repeated = int.from_bytes((mask * (len(payload) // 4 + 1))[: len(payload)], "big")
    return (int.from_bytes(payload, "big") ^ repeated).to_bytes(len(payload), "big")


def upgrade_headers(
    extra: Iterable[tuple[str, str]] = (), *, host: str = "localhost", without: Iterable[str] = ()
) -> list[tuple[str, str]]:
    """Return the headers of a websocket request, less those a test leaves out."""
    headers = [
        ("Host", host),
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Key", base64.b64encode(os.urandom(16)).decode()),
        ("Sec-WebSocket-Version", "13"),
    ]
    left_out = {name.lower() for name in without}
    return [pair for pair in headers if pair[0].lower() not in left_out] + list(extra)


async def start_websocket(
    target: Target,
    path: str,
    headers: Iterable[tuple[str, str]] = (),
    *,
    without: Iterable[str] = (),
    receive_buffer: int | None = None,
) -> RawWebSocket:
    """Dial and send an upgrade request, without waiting for the answer."""
    connection = await RawWebSocket.dial(target, receive_buffer=receive_buffer)
    assert isinstance(connection, RawWebSocket)
    connection.sent_headers = upgrade_headers(headers, without=without)
    await connection.ask("GET", path, connection.sent_headers)
    return connection


async def finish_websocket(connection: RawWebSocket) -> RawWebSocket:
    """Read the answer to `start_websocket`.

    Raises:
        NotSwitched: it is not 101; the connection is closed.
    """
    connection.answered = await connection.answer()
    if connection.answered.status != 101:
        await connection.close()
        raise NotSwitched(connection.answered)
    key = dict(connection.sent_headers)["Sec-WebSocket-Key"].encode()
    expected = base64.b64encode(hashlib.sha1(key + _MAGIC).digest()).decode()
    assert expected == connection.answered.headers["sec-websocket-accept"]
    return connection


async def open_websocket(target: Target, path: str, headers: Iterable[tuple[str, str]] = (), **options) -> RawWebSocket:
    """Dial, ask and read the answer.

    Raises:
        NotSwitched: it is not 101.
    """
    return await finish_websocket(await start_websocket(target, path, headers, **options))


async def refused(target: Target, path: str, headers: Iterable[tuple[str, str]] = (), **options) -> Answer:
    """Return the answer to an upgrade request that is expected to be refused."""
    try:
        websocket = await open_websocket(target, path, headers, **options)
    except NotSwitched as error:
        return error.answer
    await websocket.close()
    raise AssertionError("the relay answered 101")


async def request(
    target: Target, method: str, path: str, headers: Iterable[tuple[str, str]] = (), body: bytes = b""
) -> Answer:
    """Send a plain HTTP request and return the answer."""
    async with await RawConnection.dial(target) as connection:
        await connection.ask(method, path, [("Host", target.host), *headers], body)
        return await connection.answer()
