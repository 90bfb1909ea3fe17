"""Facts about dialling: addresses, proxies and the time of each step."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from relay_core.errors import RelayUnreachable
from relay_core.net.relay_tls import client_tls
from relay_core.net.websocket.dialing import OpeningSteps
from relay_core.net.websocket.handshake import open_websocket
from relay_core.net.websocket.opening_errors import HandshakeRefused, ProxyRefused, proxy_for
from relay_server.config.certificates import Certificates, prepare, server_context
from relay_server.config.model import TlsSettings
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.streams import carry_to, local_server
from tests.support.network.impostor import impostor

HOST = "contoso.servicebus.windows.net"
NOT_FOUND = b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
def certificates(tls_directory: Path) -> Certificates:
    """The certificates of localhost."""
    return prepare(TlsSettings(directory=tls_directory), ["localhost"])


@pytest.fixture
def trusted(certificates: Certificates) -> ssl.SSLContext:
    """A client context that trusts the test CA."""
    return client_tls(str(certificates.ca))


def test_steps() -> None:
    """Complete steps have a time; a step that was interrupted is what the connection waited for."""
    steps = OpeningSteps()
    with steps.step("DNS"):
        pass
    assert steps.has_reached("DNS")
    assert not steps.has_reached("TLS")
    with contextlib.suppress(ZeroDivisionError), steps.step("TLS"):
        raise ZeroDivisionError
    assert steps.has_reached("TLS")
    assert str(steps).startswith("DNS 0.0")
    assert str(steps).endswith(", waiting for TLS")


@pytest.mark.parametrize("dead", ["refuses", "never answers"])
async def test_the_next_address_is_tried(
    tls_directory: Path, trusted: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, dead: str
) -> None:
    """If the first address of a name refuses connections or does not answer, the next one is used."""
    with contextlib.ExitStack() as sockets:
        listening = sockets.enter_context(socket.create_server(("127.0.0.2", 0), backlog=0))
        if dead == "refuses":
            listening.shutdown(socket.SHUT_RDWR)
        else:  # a full queue: Linux ignores further requests to connect
            for _ in range(3):
                filler = sockets.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex(listening.getsockname())
        async with impostor(tls_directory, NOT_FOUND) as port:
            addresses = [listening.getsockname(), ("127.0.0.1", port)]

            resolve = asyncio.get_running_loop().getaddrinfo

            async def resolved(host: str, *arguments: Any, **options: Any) -> list[object]:
                if host != "localhost":  # uvloop resolves addresses too
                    return await resolve(host, *arguments, **options)
                return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", each) for each in addresses]

            monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolved)
            with pytest.raises(HandshakeRefused):
                await open_websocket(f"wss://localhost:{port}/x?y", tls=trusted)


@contextlib.asynccontextmanager
async def proxy(
    answer: bytes = b"HTTP/1.1 200 OK\r\n\r\n", tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Run a CONNECT proxy for loopback that gives one answer; yields its port and the heads of its requests."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        if b" 200 " in answer:
            port = int(heads[-1].split(b" ")[1].rpartition(b":")[2])
            await carry_to(port, reader, writer)

    async with local_server(serve, tls=tls) as (port, _):
        yield port, heads


async def test_the_request_to_a_proxy(
    tls_directory: Path, trusted: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names host and port, this program, and the user and password of the proxy's URL, decoded."""
    async with proxy() as (port, heads), impostor(tls_directory, NOT_FOUND) as server:
        monkeypatch.setenv("HTTPS_PROXY", f"http://alice:s%40cret@127.0.0.1:{port}")
        with pytest.raises(HandshakeRefused):
            await open_websocket(f"wss://localhost:{server}/x?y", tls=trusted)
    assert heads == [
        f"CONNECT localhost:{server} HTTP/1.1\r\nHost: localhost:{server}\r\nUser-Agent: relay-debug\r\n"
        "Proxy-Authorization: Basic YWxpY2U6c0BjcmV0\r\n\r\n".encode()
    ]


async def test_a_proxy_with_tls(
    tls_directory: Path,
    certificates: Certificates,
    trusted: ssl.SSLContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection to a proxy with an https URL has TLS of its own, and the server's runs inside it."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))
    async with proxy(tls=server_context(certificates)) as (port, heads), impostor(tls_directory, NOT_FOUND) as server:
        monkeypatch.setenv("HTTPS_PROXY", f"https://localhost:{port}")
        with pytest.raises(HandshakeRefused):
            await open_websocket(f"wss://localhost:{server}/x?y", tls=trusted)
    assert 1 == len(heads)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"x" * 100_000,
    ],
)
async def test_a_proxy_that_does_not_answer_like_one(
    trusted: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    """Whatever else is behind the proxy's address, the error names the proxy."""
    async with proxy(answer) as (port, _):
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
        with pytest.raises(ProxyRefused, match="the proxy did not connect to localhost:1"):
            await open_websocket("wss://localhost:1/x?y", tls=trusted)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_never_answers(
    trusted: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """The connection to it is closed when the time is over."""
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        closed.set()

    async with local_server(serve) as (port, _):
        monkeypatch.setenv("HTTPS_PROXY", f"{scheme}://127.0.0.1:{port}")
        with pytest.raises(RelayUnreachable, match="did not answer within 0.3 s through the proxy"):
            await open_websocket("wss://relay.invalid/x?y", tls=trusted, timeout=0.3)
        await asyncio.wait_for(closed.wait(), DEADLINE)


@pytest.mark.parametrize(
    ("host", "environment", "proxy"),
    [
        (HOST, {"HTTPS_PROXY": "proxy.example:3128"}, "http://proxy.example:3128"),
        (HOST, {"HTTPS_PROXY": "ann:word@10.1.2.3:3128"}, "http://10.1.2.3:3128"),
        (HOST, {"ALL_PROXY": "proxy.example:3128"}, "http://proxy.example:3128"),
        (HOST, {"ALL_PROXY": "http://all.example:1", "HTTPS_PROXY": "http://one.example:2"}, "http://one.example:2"),
        (HOST, {"ALL_PROXY": "proxy.example:3128", "NO_PROXY": ".windows.net"}, "None"),
        ("10.9.8.7", {"HTTPS_PROXY": "proxy.example:3128", "NO_PROXY": "localhost, 10.0.0.0/8"}, "None"),
        ("[fd00::1]", {"HTTPS_PROXY": "proxy.example:3128", "NO_PROXY": "fd00::/8"}, "None"),
        ("11.9.8.7", {"HTTPS_PROXY": "proxy.example:3128", "NO_PROXY": "10.0.0.0/8,::/0"}, "http://proxy.example:3128"),
        (HOST, {"HTTPS_PROXY": "proxy.example:3128", "NO_PROXY": "0.0.0.0/0"}, "http://proxy.example:3128"),
    ],
)
def test_proxies_as_curl_reads_them(
    monkeypatch: pytest.MonkeyPatch, host: str, environment: dict[str, str], proxy: str
) -> None:
    """A proxy needs no scheme, `ALL_PROXY` is the fallback, and networks in `NO_PROXY` exclude their addresses."""
    for name in ("HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert proxy == str(proxy_for(f"wss://{host}/x"))
