"""Facts about the errors of opening a WebSocket."""

import asyncio
import contextlib
import inspect
import re
import socket
import ssl
import struct
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as websockets_connect
from websockets.client import ClientProtocol
from websockets.protocol import State
from websockets.uri import parse_uri

from relay_core.errors import (
    ConfigurationError,
    ProtocolError,
    RelayDebugError,
    RelayUnreachable,
    UntrustedCertificate,
)
from relay_core.hyco.backoff import AttemptBudget
from relay_core.net.relay_tls import client_tls
from relay_core.net.websocket import handshake
from relay_core.net.websocket.dialing import TLS
from relay_core.net.websocket.handshake import ServerAnswer, ask_server, open_websocket
from relay_core.net.websocket.opening_errors import HandshakeRefused
from relay_server.config import certificates as relay_tls
from relay_server.config.certificates import server_context
from relay_server.config.model import TlsSettings
from tests.support.machine.ports import free_port
from tests.support.machine.streams import Handler, carry_to, echo, local_server
from tests.support.network.impostor import impostor


@pytest.fixture(autouse=True)
def _full_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier tests of this process have repeated dials, too."""
    monkeypatch.setattr(handshake, "_further_dials", AttemptBudget(rate=1.0, burst=8.0))


@pytest.fixture
def trusted(tls_directory: Path) -> ssl.SSLContext:
    """A client context that trusts the test CA."""
    return client_tls(str(relay_tls.prepare(TlsSettings(directory=tls_directory), ["localhost"]).ca))


async def test_other_statuses_keep_their_reason(tls_directory: Path, trusted: ssl.SSLContext) -> None:
    """A response other than 101 raises an error with its status and reason phrase."""
    # language: keep - Azure's text
    answer = b"HTTP/1.1 404 There are no listeners. TrackingId:1\r\nContent-Length: 0\r\n\r\n"
    async with impostor(tls_directory, answer) as port:
        with pytest.raises(HandshakeRefused) as caught:
            await open_websocket(f"wss://localhost:{port}/x?y", tls=trusted)
    # language: keep - Azure's text
    assert (404, "There are no listeners. TrackingId:1") == (caught.value.status, caught.value.reason)


async def test_redirects_are_not_followed(tls_directory: Path, trusted: ssl.SSLContext) -> None:
    """A redirect would carry the token to another host, so it is an answer like any other."""
    answer = b"HTTP/1.1 307 Elsewhere\r\nLocation: wss://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    async with impostor(tls_directory, answer) as port:
        with pytest.raises(HandshakeRefused) as caught:
            await open_websocket(f"wss://localhost:{port}/x?y", tls=trusted)
    assert 307 == caught.value.status


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nlogin",
        b"HTTP/1.1 101 OK\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: no\r\n\r\n",
    ],
)
async def test_servers_that_are_not_relays(tls_directory: Path, trusted: ssl.SSLContext, answer: bytes) -> None:
    """A server that is not a relay results in one sentence or its status, whatever it sends."""
    async with impostor(tls_directory, answer) as port:
        with pytest.raises((ProtocolError, HandshakeRefused, RelayUnreachable)):
            await open_websocket(f"wss://localhost:{port}/x?y", tls=trusted)


async def test_a_silent_server_has_a_deadline(trusted: ssl.SSLContext) -> None:
    """A port that accepts and sends nothing is an error after the time limit."""

    async def silent(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with local_server(silent) as (port, _):
        with pytest.raises(RelayUnreachable, match="did not answer within 0.3 s.*HTTPS_PROXY"):
            await open_websocket(f"wss://localhost:{port}/x?y", tls=trusted, timeout=0.3)


async def test_a_server_without_tls(trusted: ssl.SSLContext) -> None:
    """Plain text on the port is a TLS failure, not a hang."""
    async with local_server(echo) as (port, _):
        with pytest.raises(RelayUnreachable, match="TLS with localhost"):
            await open_websocket(f"wss://localhost:{port}/x?y", tls=trusted)


async def test_nobody_there(trusted: ssl.SSLContext) -> None:
    """A refused connection is an error with that reason."""
    with pytest.raises(RelayUnreachable, match="connection refused"):
        await open_websocket(f"wss://localhost:{free_port()}/x?y", tls=trusted)


@pytest.mark.parametrize("resets", [False, True])
async def test_a_server_that_hangs_up(trusted: ssl.SSLContext, resets: bool) -> None:
    """A connection that is closed or reset before TLS has begun is an error with one reason, which is logged once."""

    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)  # what is not read would make the system reset the connection
        if resets:
            linger = struct.pack("ii", 1, 0)  # close() then sends RST
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.close()

    async with local_server(close) as (port, _):
        with pytest.raises(RelayUnreachable, match=f"cannot connect to localhost:{port}: the connection was closed"):
            await open_websocket(f"wss://localhost:{port}/x?y", tls=trusted)


async def test_a_name_that_does_not_resolve(trusted: ssl.SSLContext) -> None:
    """A misspelt namespace is a name problem, not a network problem."""
    with pytest.raises(RelayUnreachable, match="name no-such-namespace.invalid cannot be resolved.*spelling"):
        await open_websocket("wss://no-such-namespace.invalid/x?y", tls=trusted)


@pytest.mark.parametrize(
    ("host", "proxy", "error"),
    [
        (
            "relay.invalid",
            "socks5h://127.0.0.1:1",
            "SOCKS proxy, which needs a package that is not installed.*python-socks",
        ),
        ("relay.invalid", "http://a..b:3128", "invalid host name in HTTPS_PROXY.*1 to 63"),
        ("relay.invalid", "http://proxy:port", "address relay.invalid or HTTPS_PROXY is malformed.*http://proxy"),
        ("relay.invalid", "http://[::1", "address relay.invalid or HTTPS_PROXY is malformed"),
        ("a..b", None, "invalid host name: a..b.*1 to 63"),
        (f"{'a' * 64}.invalid:443", None, "invalid host name: a{64}.invalid:443"),
        ("relay.invalid:70000", None, "address relay.invalid:70000 or HTTPS_PROXY is malformed"),
    ],
)
async def test_an_unusable_address_or_proxy(
    trusted: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, host: str, proxy: str | None, error: str
) -> None:
    """A name that cannot be encoded, a port that is not a number and a SOCKS proxy are errors of the settings."""
    if proxy is not None:
        monkeypatch.setenv("HTTPS_PROXY", proxy)
    monkeypatch.setitem(sys.modules, "python_socks", None)  # where it is installed, the proxy would be used
    with pytest.raises(ConfigurationError, match=error):
        await open_websocket(f"wss://{host}/x?y", tls=trusted)


async def test_an_unexpected_error_has_a_sentence(trusted: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that nothing here expects, in name resolution for example, is reported by its type only."""

    async def broken(*_arguments: object, **_options: object) -> None:
        raise LookupError("a secret")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", broken)
    with pytest.raises(RelayDebugError, match="cannot connect to relay.invalid: unexpected LookupError") as caught:
        await open_websocket("wss://relay.invalid/x?y", tls=trusted)
    assert "secret" not in str(caught.value)


async def test_an_unknown_authority(tls_directory: Path) -> None:
    """A certificate of an unknown authority is refused before anything is sent."""
    async with impostor(tls_directory, b"") as port:
        with pytest.raises(UntrustedCertificate, match="--ca-file"):
            await open_websocket(f"wss://localhost:{port}/x?y", tls=client_tls(environ={}))


async def test_a_certificate_for_another_name(tls_directory: Path, trusted: ssl.SSLContext) -> None:
    """A certificate for another host is refused, even from a trusted authority."""
    async with impostor(tls_directory, b"", host="127.0.0.2") as port:
        with pytest.raises(UntrustedCertificate):
            await open_websocket(f"wss://127.0.0.2:{port}/x?y", tls=trusted)


NOT_FOUND = b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"


@contextlib.asynccontextmanager
async def connect_proxy(status: bytes = b"200 OK") -> AsyncIterator[tuple[int, list[bytes]]]:
    """Run a CONNECT proxy for loopback; yields its port and the list of request lines it gets."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.split(b"\r\n")[0])
        writer.write(b"HTTP/1.1 " + status + b"\r\n\r\n")
        if not status.startswith(b"200"):
            return
        port = int(head.split(b" ")[1].rpartition(b":")[2])
        await carry_to(port, reader, writer)

    handler: Handler = serve
    async with local_server(handler) as (port, _):
        yield port, asked


def use_proxy(monkeypatch: pytest.MonkeyPatch, proxy: str, exempt: str = "") -> None:
    """Name a proxy in the environment, for all hosts but the exempt ones."""
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    monkeypatch.delenv("https_proxy", raising=False)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, exempt)


async def test_the_proxy_of_the_environment_is_used(
    tls_directory: Path, trusted: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTTPS_PROXY carries the connection, and TLS goes through it to the relay."""
    async with connect_proxy() as (proxy, asked), impostor(tls_directory, NOT_FOUND) as port:
        use_proxy(monkeypatch, f"http://127.0.0.1:{proxy}")
        with pytest.raises(HandshakeRefused):
            await open_websocket(f"wss://localhost:{port}/x?y", tls=trusted)
    assert [f"CONNECT localhost:{port} HTTP/1.1".encode()] == asked


@pytest.mark.parametrize(
    ("proxy", "reason"),
    [("127.0.0.1:{port}", "connection refused"), ("proxy.invalid:3128", "the proxy's name cannot be resolved")],
)
async def test_a_dead_proxy_is_named(
    trusted: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, proxy: str, reason: str
) -> None:
    """If the proxy cannot be reached, the sentence names it, without its password, because the relay may be well."""
    address = proxy.format(port=free_port())
    use_proxy(monkeypatch, f"http://alice:secret@{address}")
    with pytest.raises(RelayUnreachable) as caught:
        await open_websocket("wss://relay.example/x", tls=trusted)
    assert f"cannot connect to relay.example through the proxy http://{address}: {reason}" == caught.value.sentence


async def test_no_proxy_exempts_hosts(
    tls_directory: Path, trusted: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hosts of NO_PROXY are dialled directly."""
    async with connect_proxy() as (proxy, asked), impostor(tls_directory, NOT_FOUND) as port:
        use_proxy(monkeypatch, f"http://127.0.0.1:{proxy}", exempt="localhost")
        with pytest.raises(HandshakeRefused):
            await open_websocket(f"wss://localhost:{port}/x?y", tls=trusted)
    assert [] == asked


async def test_a_proxy_that_refuses(trusted: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy's refusal is distinguished from the relay's, and shows no credentials."""
    async with connect_proxy(b"407 Proxy Authentication Required") as (proxy, _):
        use_proxy(monkeypatch, f"http://user:hidden-word@127.0.0.1:{proxy}")
        with pytest.raises(RelayUnreachable, match="the proxy refused the connection to localhost:1.*407") as caught:
            await open_websocket("wss://localhost:1/x?y", tls=trusted)
    assert "hidden-word" not in str(caught.value)


async def test_a_proxy_that_is_none(trusted: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """A malformed HTTPS_PROXY is a configuration error that does not repeat it."""
    use_proxy(monkeypatch, "ftp://user:hidden-word@x")
    with pytest.raises(ConfigurationError, match="HTTPS_PROXY is unusable") as caught:
        await open_websocket("wss://localhost:1/x?y", tls=trusted)
    assert "hidden-word" not in str(caught.value)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_ca_file_that_is_none(tmp_path: Path, content: str | None) -> None:
    """A CA file that is missing or empty of certificates is named."""
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigurationError, match=f"cannot use the CA file {path}"):
        client_tls(str(path))


def test_connection_class_and_redirect_rule_of_websockets() -> None:
    """`websockets.connect` still lets its caller choose the class of a connection and what follows a redirect."""
    assert "create_connection" in inspect.signature(websockets_connect).parameters
    assert ["self", "exc"] == list(inspect.signature(websockets_connect.process_redirect).parameters)


async def test_connection_of_websockets_is_an_asyncio_protocol() -> None:
    """What `_Handshake` uses without a promise: `data_received` gets the bytes, `state` and `transport` are there."""
    connection = ClientConnection(ClientProtocol(parse_uri("wss://localhost/")))
    assert isinstance(connection, asyncio.Protocol)
    assert ["self", "data"] == list(inspect.signature(ClientConnection.data_received).parameters)
    assert connection.state is State.CONNECTING
    ours, theirs = socket.socketpair()
    with theirs:
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: connection, sock=ours)
        assert connection.transport is transport
        transport.abort()
        await connection.wait_closed()


@contextlib.asynccontextmanager
async def slow_for(number: int, then_to: int) -> AsyncIterator[tuple[int, list[int]]]:
    """Never answer the first connections, and carry later ones to a port; yields a port and what has connected."""
    seen: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(len(seen))
        if len(seen) <= number:
            await reader.read()  # until it is closed
            return
        await carry_to(then_to, reader, writer)

    async with local_server(serve) as (port, _):
        yield port, seen


@pytest.mark.parametrize("is_repeatable", [True, False])
@pytest.mark.parametrize("hanging", [1, 2])
async def test_a_dial_that_hangs_is_repeated(
    tls_directory: Path, trusted: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, hanging: int, is_repeatable: bool
) -> None:
    """Connections that do not get as far as TLS hold nobody up; the next one is used."""
    monkeypatch.setitem(handshake._repeated.keywords, "again_after", (0.01, 0.01))
    async with impostor(tls_directory, NOT_FOUND) as server, slow_for(hanging, server) as (port, seen):
        with pytest.raises(HandshakeRefused):
            await open_websocket(f"wss://localhost:{port}/x?y", tls=trusted, is_repeatable=is_repeatable)
    assert hanging < len(seen) <= 3


@pytest.mark.parametrize(("is_repeatable", "requests"), [(True, 3), (False, 1)])
async def test_only_a_repeatable_request_is_repeated(
    tls_directory: Path, trusted: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, is_repeatable: bool, requests: int
) -> None:
    """A request without an answer is sent again, twice, only if it may be: an address of a rendezvous works once."""
    monkeypatch.setitem(handshake._repeated.keywords, "again_after", (0.05, 0.05))
    received: list[bytes] = []

    async def never_answer(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"\r\n\r\n"))
        await reader.read()

    context = server_context(relay_tls.prepare(TlsSettings(directory=tls_directory), ["localhost"]))
    async with local_server(never_answer, tls=context) as (port, _):
        with pytest.raises(RelayUnreachable, match="did not answer within 1 s"):
            await open_websocket(f"wss://localhost:{port}/x?y", tls=trusted, timeout=1, is_repeatable=is_repeatable)
    assert requests == len(received)


async def test_further_dials_have_a_budget(trusted: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """When every dial is slow, because the relay is, few are repeated."""
    monkeypatch.setitem(handshake._repeated.keywords, "again_after", (0.01, 0.01))
    monkeypatch.setattr(handshake, "_further_dials", AttemptBudget(rate=0.0, burst=5.0))
    async with slow_for(1000, 0) as (port, seen):
        dials = (open_websocket(f"wss://localhost:{port}/x?y", tls=trusted, timeout=0.5) for _ in range(20))
        errors = await asyncio.gather(*dials, return_exceptions=True)
    assert all(isinstance(error, RelayUnreachable) for error in errors)
    assert 25 == len(seen)


async def test_the_steps_of_an_opening_are_logged(
    tls_directory: Path, trusted: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    """With --verbose, the log shows how long each step of a connection took, or for which one it waited."""
    caplog.set_level("DEBUG", "relay_core.net.websocket.handshake")
    async with impostor(tls_directory, NOT_FOUND) as port:
        with pytest.raises(HandshakeRefused):
            await open_websocket(f"wss://localhost:{port}/x?y", tls=trusted)
    assert re.search(
        rf"dialled localhost:{port} for \d.\d\d\d s: DNS .* s, TCP .* s, TLS .* s, response \d.\d\d\d s", caplog.text
    )
    async with slow_for(1, 0) as (port, _):
        with pytest.raises(RelayUnreachable):
            await open_websocket(f"wss://localhost:{port}/x?y", tls=trusted, timeout=0.1)
    assert "waiting for TLS" in caplog.text


async def test_a_server_is_asked_without_credentials(tls_directory: Path, trusted: ssl.SSLContext) -> None:
    """The answer has the certificate, the status, the date and the time of each step."""
    dated = b"HTTP/1.1 404 No\r\nDate: Sat, 28 Nov 2026 17:00:00 GMT\r\nContent-Length: 0\r\n\r\n"
    answer = ServerAnswer()
    async with impostor(tls_directory, dated) as port:
        await ask_server(f"wss://localhost:{port}/", answer, tls=trusted)
    assert (404, "Sat, 28 Nov 2026 17:00:00 GMT") == (answer.status, answer.date)
    assert answer.steps.has_reached(TLS)
    assert answer.certificate is not None
    assert ["DNS", "TCP", "TLS", "response"] == list(answer.steps.seconds)
