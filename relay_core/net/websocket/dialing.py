"""Dials the server of a WebSocket: whether a proxy is used, name resolution, TCP and TLS, with the time of each step.

`websockets.connect` can do all this, but only as one call that uses asyncio's TLS transport: its steps can neither be
measured nor repeated on their own. What is left to the package are its rules about proxies. Addresses are raced as
RFC 8305 ("happy eyeballs") prescribes, by the library that aiohttp uses for it, because IPv6 that leads nowhere would
otherwise take the whole time limit.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import cast
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohappyeyeballs
from websockets.datastructures import Headers
from websockets.exceptions import InvalidProxyStatus, ProxyError
from websockets.http11 import Response
from websockets.uri import WebSocketURI

try:
    from websockets.proxy import Proxy, get_proxy, parse_proxy
except ImportError:  # up to websockets 15
    from websockets.uri import Proxy, get_proxy, parse_proxy  # type: ignore[attr-defined, no-redef]

from relay_core.net.tls import TlsMachine, TlsTransport

USER_AGENT = "relay-debug"
TLS = "TLS"
"""Name of the step that follows when the connection to the server, or the proxy's to it, exists."""
NEXT_ADDRESS_AFTER = 0.25
"""Seconds; the default of RFC 8305, section 5."""
BLANK_LINE = b"\r\n\r\n"
MAX_PROXY_ANSWER = 64 * 1024
"""Bytes of the head of a proxy's answer."""


class OpeningSteps:
    """The steps of opening one connection, and how many seconds each has taken."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        """Complete steps, in order."""
        self.current = ""
        """The step that has begun and is not complete, or ""."""

    def __str__(self) -> str:
        complete = [f"{name} {seconds:.3f} s" for name, seconds in self.seconds.items()]
        return ", ".join([*complete, f"waiting for {self.current}"] if self.current else complete)

    def has_reached(self, name: str) -> bool:
        """Return True if a step has begun."""
        return name in self.seconds or name == self.current

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure the block; after an exception, `current` still has the name."""
        self.current, started = name, time.monotonic()
        yield
        self.seconds[name], self.current = time.monotonic() - started, ""


async def dial(
    uri: WebSocketURI, protocol: asyncio.BufferedProtocol, *, tls: ssl.SSLContext, steps: OpeningSteps
) -> TlsTransport:
    """Return a TLS connection to the server of `uri`, whose protocol is `protocol`.

    Args:
        uri: The server, and whether a proxy is used for it.
        protocol: Receives the plaintext.
        tls: The context that verifies the server's certificate.
        steps: Filled in.

    Raises:
        OSError, ssl.SSLError, UnicodeError: The server or the proxy cannot be reached.
        ProxyError, InvalidProxy, ValueError, ImportError: The proxy is unusable or has refused.
    """
    transport = TlsTransport(protocol, TlsMachine(tls, server_side=False, server_hostname=uri.host))
    proxy = chosen_proxy(uri)
    try:
        if proxy is None:
            await _connect(uri.host, uri.port, transport, steps)
        elif proxy.scheme.startswith("socks"):
            from websockets.asyncio.client import connect_socks_proxy  # noqa: PLC0415 - rarely needed, and slow to import

            with steps.step("SOCKS proxy"):
                await _use_socket(await connect_socks_proxy(proxy, uri), transport)
        else:
            await _connect_with_http_proxy(proxy, uri, transport, steps)
        with steps.step(TLS):
            await transport.established
    except BaseException:  # also if cancelled: nothing else would close the connection
        transport.abort()
        raise
    return transport


def chosen_proxy(uri: WebSocketURI) -> Proxy | None:
    """Return the proxy for a server, or None: that of `HTTPS_PROXY` or `ALL_PROXY`, unless `NO_PROXY` excludes it.

    As for curl, an address without a scheme is that of an HTTP proxy.

    Raises:
        InvalidProxy, ValueError: The proxy's address is unusable.
    """
    if proxy_bypass(f"{uri.host}:{uri.port}") or _is_in_excluded_network(uri.host):
        return None
    address = get_proxy(uri) or getproxies().get("all")
    if not address:
        return None
    address = address if "://" in address else f"http://{address}"
    proxy, parts = parse_proxy(address), urlsplit(address)
    if proxy.username is None:
        return proxy
    # up to version 16, `websockets` does not decode them
    return replace(proxy, username=unquote(parts.username or ""), password=unquote(parts.password or ""))


def _is_in_excluded_network(host: str) -> bool:
    """Return whether `NO_PROXY` has a network, such as 10.0.0.0/8, that contains a host; urllib compares names only."""
    for entry in getproxies().get("no", "").split(","):
        with contextlib.suppress(ValueError):  # a name
            if ip_address(host) in ip_network(entry.strip(), strict=False):
                return True
    return False


async def _connect(host: str, port: int, protocol: asyncio.BaseProtocol, steps: OpeningSteps) -> asyncio.Transport:
    loop = asyncio.get_running_loop()
    with steps.step("DNS"):
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    with steps.step("TCP"):
        connection = await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=NEXT_ADDRESS_AFTER)
        return await _use_socket(connection, protocol)


async def _use_socket(connection: socket.socket, protocol: asyncio.BaseProtocol) -> asyncio.Transport:
    transport, _ = await asyncio.get_running_loop().create_connection(lambda: protocol, sock=connection)
    return transport


async def _connect_with_http_proxy(
    proxy: Proxy, uri: WebSocketURI, protocol: asyncio.BaseProtocol, steps: OpeningSteps
) -> None:
    answer = _ProxyAnswer()
    if proxy.scheme == "https":
        machine = TlsMachine(ssl.create_default_context(), server_side=False, server_hostname=proxy.host)
        below: asyncio.Transport = TlsTransport(answer, machine)
        await _connect(proxy.host, proxy.port, cast("TlsTransport", below), steps)
    else:
        below = await _connect(proxy.host, proxy.port, answer, steps)
    try:
        if isinstance(below, TlsTransport):
            with steps.step("TLS of the proxy"):
                await below.established
        with steps.step("proxy"):
            below.write(_connect_request(proxy, uri))
            _check_answer(await answer.head)
    except BaseException:
        below.abort()
        raise
    below.set_protocol(protocol)
    cast("asyncio.Protocol", protocol).connection_made(below)


class _ProxyAnswer(asyncio.BufferedProtocol):
    """Receives the head of a proxy's answer to CONNECT."""

    def __init__(self) -> None:
        self.head: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._buffer = memoryview(bytearray(4096))
        self._received = b""

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._received += self._buffer[:nbytes]
        if not self.head.done() and (BLANK_LINE in self._received or len(self._received) > MAX_PROXY_ANSWER):
            self.head.set_result(self._received.partition(BLANK_LINE)[0])

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - its bytes, if any, are not an answer
        if not self.head.done():
            self.head.set_result(self._received)


def _connect_request(proxy: Proxy, uri: WebSocketURI) -> bytes:
    host = f"[{uri.host}]" if ":" in uri.host else uri.host
    lines = [f"CONNECT {host}:{uri.port} HTTP/1.1", f"Host: {host}:{uri.port}", f"User-Agent: {USER_AGENT}"]
    if proxy.username is not None:
        credentials = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {credentials}")
    return "\r\n".join([*lines, "", ""]).encode()


def _check_answer(head: bytes) -> None:
    """Raise unless a proxy's answer is 2xx."""
    status_line, *fields = head.decode("latin-1").split("\r\n")
    version, _, status = status_line.partition(" ")
    code, _, reason = status.partition(" ")
    if not (version.startswith("HTTP/1.") and len(code) == 3 and code.isdecimal()):
        raise ProxyError("did not receive a valid HTTP response from proxy")
    if not code.startswith("2"):
        headers = Headers()
        for name, colon, value in (field.partition(":") for field in fields):
            if colon:
                headers[name.strip()] = value.strip()
        raise InvalidProxyStatus(Response(int(code), reason, headers))
