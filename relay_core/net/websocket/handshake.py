"""Performs the opening handshake of a WebSocket with the `websockets` package, which also handles proxies.

No other file imports that package. After the handshake, `relay_core.net.websocket.connection` takes over the
connection, because the package's own asyncio layer takes more time per message than the rest of the path (see `make
bench`).

Three settings are required for correctness and security: no compression (the relay echoes extension offers as if they
were agreed), no redirects (they would send the token to another host), and a logger that never logs at DEBUG level
(which would include headers with tokens).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as websockets_connect
from websockets.exceptions import (
    InvalidHandshake,
    InvalidMessage,
    InvalidProxy,
    InvalidStatus,
    InvalidURI,
    ProxyError,
)
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

try:
    from websockets.proxy import get_proxy, parse_proxy
except ImportError:  # up to websockets 15
    from websockets.uri import get_proxy, parse_proxy  # type: ignore[attr-defined, no-redef]

from relay_core.compat import TIMEOUT_ERRORS
from relay_core.errors import (
    ConfigurationError,
    ProtocolError,
    RelayDebugError,
    RelayUnreachable,
    UntrustedCertificate,
)
from relay_core.net.websocket.connection import WebSocket

__all__ = [
    "OPEN_TIMEOUT",
    "HandshakeRefused",
    "ProxyAddress",
    "ProxyRefused",
    "ServerAnswer",
    "ask_server",
    "open_websocket",
    "opening_mapped",
    "proxy_for",
]

OPEN_TIMEOUT = 10.0
"""Seconds; some gateways never answer an upgrade request."""

BLANK_LINE = b"\r\n\r\n"

_quiet_logger = logging.getLogger("relay_core.net.websocket.handshake.wire")
_quiet_logger.setLevel(logging.ERROR)
_quiet_logger.propagate = False
_quiet_logger.addHandler(logging.NullHandler())


class HandshakeRefused(Exception):
    """The server answered the upgrade request with a status other than 101.

    Args:
        status: HTTP status.
        reason: Reason phrase.
        date: Value of the answer's Date header, or None.
    """

    def __init__(self, status: int, reason: str, date: str | None = None) -> None:
        super().__init__(f"{status} {reason}")
        self.status = status
        self.reason = reason
        self.date = date


class ProxyRefused(RelayUnreachable):
    """The proxy did not connect to the server."""


@dataclass(frozen=True)
class ProxyAddress:
    """The proxy through which a server is reached, without the user name and password for the proxy."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


@dataclass
class ServerAnswer:
    """What an opening handshake without credentials has revealed about a server."""

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


def proxy_for(url: str) -> ProxyAddress | None:
    """Return the proxy that a connection to `url` uses, or None if it is direct.

    Raises:
        ConfigurationError: The proxy's address is unusable.
    """
    with opening_mapped(url.split("/", 3)[2], OPEN_TIMEOUT):
        text = get_proxy(parse_uri(url))
        if text is None:
            return None
        proxy = parse_proxy(text)
        if proxy.scheme.startswith("socks"):
            importlib.import_module("python_socks")  # only to see whether it is installed
    return ProxyAddress(proxy.scheme, proxy.host, proxy.port)


@contextlib.contextmanager
def opening_mapped(  # noqa: C901, PLR0912 - a table of foreign errors
    host: str, timeout: float, *, may_use_proxy: bool = False
) -> Iterator[None]:
    """Replace exceptions from `websockets`, asyncio and ssl, so that users see only this project's sentences."""
    # The order matters: certificate, TLS, time-out and name errors are all subclasses of OSError.
    try:
        yield
    except InvalidStatus as error:
        response = error.response
        raise HandshakeRefused(response.status_code, response.reason_phrase, response.headers.get("Date")) from None
    except ssl.SSLCertVerificationError as error:
        raise UntrustedCertificate(
            f"the certificate of {host} is not trusted: {error.verify_message}",
            hint="for a relay-server, specify its ca.pem with --ca-file or RELAY_CA_FILE; behind a TLS-inspecting "
            "proxy, specify the proxy's CA",
        ) from None
    except ssl.SSLError as error:
        raise RelayUnreachable(
            f"TLS with {host} failed: {error.reason or 'unknown reason'}",
            hint="check that the address and port are those of a relay",
        ) from None
    except TIMEOUT_ERRORS:
        raise RelayUnreachable(
            f"{host} did not answer within {timeout:g} s",
            hint="check the network, HTTPS_PROXY, and the firewall rules for outbound connections to the relay "
            "(Azure: *.servicebus.windows.net, port 443)",
        ) from None
    except socket.gaierror:
        if may_use_proxy and (proxy := _proxy_text(host)):
            raise RelayUnreachable(
                f"cannot connect to {host}{proxy}: the proxy's name cannot be resolved",
                hint="check HTTPS_PROXY, NO_PROXY and this machine's DNS",
            ) from None
        raise RelayUnreachable(
            f"the name {host} cannot be resolved", hint="check the spelling of the namespace and this machine's DNS"
        ) from None
    except ProxyError as error:
        raise ProxyRefused(
            f"the proxy refused the connection to {host}: {error}", hint="check HTTPS_PROXY and NO_PROXY"
        ) from None
    except (InvalidProxy, InvalidURI) as error:
        raise ConfigurationError(
            "HTTPS_PROXY is unusable" if isinstance(error, InvalidProxy) else f"invalid address: {host}",
            hint="specify the proxy as a URL, such as http://proxy.example:3128"
            if isinstance(error, InvalidProxy)
            else "use a relay address such as contoso.servicebus.windows.net",
        ) from None
    except UnicodeError:  # a name is encoded as IDNA before it is resolved, which checks the length of its labels
        raise ConfigurationError(
            f"invalid host name: {host}" if _is_invalid_name(host) else "invalid host name in HTTPS_PROXY",
            hint="use 1 to 63 characters for each part between dots",
        ) from None
    except ValueError:  # a non-numeric port or an unclosed bracket
        raise ConfigurationError(
            f"the address {host} or HTTPS_PROXY is malformed",
            hint="use a relay address such as contoso.servicebus.windows.net, and a proxy address such as "
            "http://proxy.example:3128",
        ) from None
    except ImportError:
        raise ConfigurationError(
            "HTTPS_PROXY names a SOCKS proxy, which needs a package that is not installed",
            hint="run: pip install 'python-socks[asyncio]', or use a proxy such as http://proxy.example:3128",
        ) from None
    except OSError as error:
        proxy = _proxy_text(host) if may_use_proxy else ""
        check_relay = "check that the relay is running and that the network allows outgoing connections to it"
        raise RelayUnreachable(
            f"cannot connect to {host}{proxy}: {_os_reason(error)}",
            hint="check HTTPS_PROXY and NO_PROXY, and make sure that the proxy is running" if proxy else check_relay,
        ) from None
    except (InvalidMessage, InvalidHandshake, EOFError) as error:
        if isinstance(error, EOFError) or isinstance(error.__cause__, (EOFError, ConnectionError)):
            raise RelayUnreachable(
                f"{host} closed the connection before answering",
                hint="retry; if the error persists, check whether a firewall or proxy is closing the connection",
            ) from None
        raise ProtocolError(
            f"{host} did not respond like a relay",
            hint="check the address; the response may come from a proxy's login page",
        ) from None
    except Exception as error:  # noqa: BLE001 - the last row of the table
        raise RelayDebugError(
            f"cannot connect to {host}: unexpected {type(error).__name__}",
            hint="check the address, HTTPS_PROXY and the installed package versions",
        ) from None


def _proxy_text(host: str) -> str:
    """Return ` through the proxy http://proxy.example:3128`, or "" if connections to a host are direct."""
    proxy = proxy_for(f"wss://{host}")
    return f" through the proxy {proxy}" if proxy is not None else ""


def _is_invalid_name(host: str) -> bool:
    try:
        host.partition(":")[0].encode("idna")
    except UnicodeError:
        return True
    return False


def _os_reason(error: OSError) -> str:
    """Return the reason without the list of errors that asyncio appends, one for each address that it tried."""
    if isinstance(error, ConnectionRefusedError) or "refused" in str(error).lower():
        return "connection refused"
    if isinstance(error, ConnectionResetError):
        # One text, because a peer that closes connections before TLS causes either error, and each new text is logged.
        return "the connection was closed"
    return (error.strerror or type(error).__name__).lower()
