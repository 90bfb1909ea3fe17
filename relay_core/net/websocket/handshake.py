"""Performs the opening handshake of a WebSocket with the `websockets` package, which also handles proxies.

After the handshake, `relay_core.net.websocket.connection` takes over the
connection, because the package's own asyncio layer takes more time per message than the rest of the path (see `make
bench`).

Three settings are required for correctness and security: no compression (the relay echoes extension offers as if they
were agreed), no redirects (they would send the token to another host), and a logger that never logs at DEBUG level
(which would include headers with tokens).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as websockets_connect
from websockets.client import ClientProtocol
from websockets.protocol import State
from websockets.typing import Subprotocol

from relay_core.net.websocket.connection import WebSocket
from relay_core.net.websocket.opening_errors import OPEN_TIMEOUT, HandshakeRefused, opening_mapped

__all__ = ["ServerAnswer", "ask_server", "open_websocket"]

BLANK_LINE = b"\r\n\r\n"

_quiet_logger = logging.getLogger("relay_core.net.websocket.handshake.wire")
_quiet_logger.setLevel(logging.ERROR)
_quiet_logger.propagate = False
_quiet_logger.addHandler(logging.NullHandler())


@dataclass
class ServerAnswer:
    """What an opening handshake without credentials has revealed about a server."""

    is_connected: bool = False
    """Whether this machine, or the proxy by its own account, has connected to the server."""
    certificate: bytes | None = None
    """The server's certificate (DER); None if TLS was not established."""
    status: int | None = None
    """HTTP status; None if the answer was not HTTP."""
    date: str | None = None
    """Value of the Date header."""


class _Connect(websockets_connect):
    """`websockets.connect` without redirects."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class _Handshake(ClientConnection):
    """A `websockets` connection that stops after the 101 response and buffers later bytes for another driver."""

    early = b""
    _tail = b""
    """The last bytes of the response so far, because the blank line after its head may arrive in parts."""

    def data_received(self, data: bytes) -> None:
        # Without this split, the package would consume frames that arrive together with the response.
        seen = self._tail + data
        head = seen.find(BLANK_LINE)
        self._tail = seen[1 - len(BLANK_LINE) :]
        end = len(data) if head < 0 else head + len(BLANK_LINE) - (len(seen) - len(data))
        if self.state is State.CONNECTING:
            super().data_received(data[:end])
            data = data[end:]
        if data and self.state is State.OPEN:
            self.early += data
        elif data:  # the body of a refusal
            super().data_received(data)


async def open_websocket(
    url: str,
    *,
    tls: ssl.SSLContext,
    headers: Mapping[str, str] | None = None,
    subprotocols: Sequence[str] = (),
    timeout: float = OPEN_TIMEOUT,
) -> WebSocket:
    """Connect to a `wss://` URL, through the proxy in `HTTPS_PROXY` unless `NO_PROXY` excludes the host.

    Args:
        url: Used verbatim.
        tls: The context that verifies the server's certificate.
        headers: Added to the request; may contain secrets.
        subprotocols: Offered in this order.
        timeout: Seconds for name resolution, TCP, TLS and upgrade together.

    Raises:
        HandshakeRefused: the server responded with a status other than 101.
        RelayUnreachable, UntrustedCertificate, ConfigurationError, ProtocolError: no valid HTTP response.
        RelayDebugError: an unexpected error, named by its type.
    """
    host = url.split("/", 3)[2]
    with opening_mapped(host, timeout, may_use_proxy=True):
        connection = await _Connect(
            url,
            create_connection=_Handshake,
            ssl=tls,
            additional_headers=dict(headers or {}),
            subprotocols=[Subprotocol(name) for name in subprotocols] or None,
            compression=None,
            user_agent_header="relay-debug",
            open_timeout=timeout,
            ping_interval=None,
            logger=_quiet_logger,
        )
    early = connection.early if isinstance(connection, _Handshake) else b""
    return WebSocket(connection.transport, subprotocol=connection.subprotocol, early=early)


async def ask_server(url: str, answer: ServerAnswer, *, tls: ssl.SSLContext, timeout: float = OPEN_TIMEOUT) -> None:
    """Perform the opening handshake of `open_websocket` without credentials, and record what the server shows.

    Args:
        url: A URL at which nothing listens, because an accepted connection is closed at once.
        answer: Filled in as far as the handshake gets, even if it fails.
        tls: May leave the certificate unverified, because nothing secret is sent.
        timeout: Seconds.

    Raises:
        ProxyRefused: The proxy did not connect to the server.
        RelayDebugError: As in `open_websocket`, except that an HTTP status is not an error.
    """
    host = url.split("/", 3)[2]

    class Observed(_Handshake):
        def __init__(self, protocol: ClientProtocol, **options: Any) -> None:
            answer.is_connected = True
            super().__init__(protocol, **options)

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            answer.certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
            super().connection_made(transport)

    try:
        with opening_mapped(host, timeout, may_use_proxy=True):
            connection = await _Connect(
                url,
                create_connection=Observed,
                ssl=tls,
                compression=None,
                user_agent_header="relay-debug",
                open_timeout=timeout,
                ping_interval=None,
                logger=_quiet_logger,
            )
        answer.status = 101
        connection.transport.abort()
    except HandshakeRefused as refused:
        answer.status, answer.date = refused.status, refused.date
