"""The one file that knows the `websockets` package, so that a faster carrier could take its place.

Settings that are no matter of taste: no compression (the relay copies extension offers back as if they were agreed),
no redirects (they would carry the token elsewhere), pings with a deadline (a dead path looks healthy for ever without),
and a logger that is never at DEBUG (there, headers with tokens would be written).
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as websockets_connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidMessage,
    InvalidProxy,
    InvalidStatus,
    InvalidURI,
    ProxyError,
)
from websockets.typing import Subprotocol

from relay_core.errors import (
    ConfigurationError,
    ConnectionLost,
    ProtocolError,
    RelayUnreachable,
    UntrustedCertificate,
)
from relay_core.net.compat import TIMEOUT_ERRORS

__all__ = ["HandshakeRefused", "WebSocket", "open_websocket"]

OPEN_TIMEOUT = 10.0
"""Seconds; gateways have been seen to abandon an upgrade without an answer."""
PING_INTERVAL = 20.0
PING_TIMEOUT = 20.0
"""Seconds; load balancers drop silent TCP connections after about 4 minutes."""
CLOSE_TIMEOUT = 5.0
SENT_CLOSE_CODE_LIMIT = 123
"""Bytes of text a close frame can carry (RFC 6455, 5.5)."""

_quiet_logger = logging.getLogger("relay_core.net.websocket.wire")
_quiet_logger.setLevel(logging.ERROR)
_quiet_logger.propagate = False
_quiet_logger.addHandler(logging.NullHandler())


class HandshakeRefused(Exception):
    """The server answered the upgrade with something else than 101."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{status} {reason}")
        self.status = status
        self.reason = reason


class _Connect(websockets_connect):
    """`websockets.connect` that never follows a redirect."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class WebSocket:
    """An open client websocket."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._chunks: AsyncIterator[bytes] | None = None

    def __repr__(self) -> str:
        return f"<WebSocket {self._connection.state.name.lower()}>"

    @property
    def subprotocol(self) -> str | None:
        """The subprotocol both sides agreed on, or None."""
        return self._connection.subprotocol

    async def receive(self) -> str | bytes:
        """Return the next whole message; safe to cancel.

        Raises:
            ConnectionLost: the socket has ended; `code` is 1000 after an orderly end.
        """
        with _closing_mapped():
            return await self._connection.recv()

    async def receive_chunk(self) -> bytes:
        """Return the next piece of a message as it arrives, for streams that ignore message boundaries.

        Never returns b"" (empty messages carry nothing).

        Raises:
            ConnectionLost: as `receive`.
        """
        with _closing_mapped():
            while True:
                if self._chunks is None:
                    self._chunks = self._connection.recv_streaming(decode=False)
                async for chunk in self._chunks:
                    if chunk:
                        return chunk
                self._chunks = None

    async def send(self, message: str | bytes) -> None:
        """Send one message; returns when the socket can take more.

        Raises:
            ConnectionLost: the socket has ended.
        """
        with _closing_mapped():
            await self._connection.send(message)

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Say goodbye and wait, at most `CLOSE_TIMEOUT` seconds, for the peer's."""
        short = reason.encode()[:SENT_CLOSE_CODE_LIMIT].decode(errors="ignore")
        await self._connection.close(code, short)

    def abort(self) -> None:
        """Drop the TCP connection without a goodbye; the relay tells the peer so."""
        self._connection.transport.abort()


async def open_websocket(
    url: str,
    *,
    tls: ssl.SSLContext,
    headers: Mapping[str, str] | None = None,
    subprotocols: Sequence[str] = (),
    timeout: float = OPEN_TIMEOUT,
) -> WebSocket:
    """Connect to a `wss://` URL, through the proxy of `HTTPS_PROXY` unless `NO_PROXY` exempts the host.

    Args:
        url: Used verbatim.
        tls: Decides about trust.
        headers: Added to the request; may carry secrets.
        subprotocols: Offered in this order.
        timeout: Seconds for the whole of name look-up, TCP, TLS and upgrade.

    Raises:
        HandshakeRefused: an HTTP answer other than 101.
        RelayUnreachable, UntrustedCertificate, ConfigurationError, ProtocolError: no HTTP answer, and why.
    """
    host = url.split("/", 3)[2]
    with _opening_mapped(host, timeout):
        connection = await _Connect(
            url,
            ssl=tls,
            additional_headers=dict(headers or {}),
            subprotocols=[Subprotocol(name) for name in subprotocols] or None,
            compression=None,
            user_agent_header="relay-debug",
            open_timeout=timeout,
            ping_interval=PING_INTERVAL,
            ping_timeout=PING_TIMEOUT,
            close_timeout=CLOSE_TIMEOUT,
            max_size=None,
            write_limit=256 * 1024,
            logger=_quiet_logger,
        )
    return WebSocket(connection)


@contextlib.contextmanager
def _closing_mapped() -> Iterator[None]:
    """Map what `websockets` raises on an established connection."""
    try:
        yield
    except ConnectionClosed as error:
        frame = error.rcvd or error.sent
        code, reason = (frame.code, frame.reason) if frame else (1006, "")
        raise ConnectionLost("the websocket has ended", code=int(code), reason=reason) from None


@contextlib.contextmanager
def _opening_mapped(host: str, timeout: float) -> Iterator[None]:  # noqa: C901 - a table of foreign errors
    """Map what `websockets`, asyncio and ssl raise while connecting; no text of theirs reaches the user unread."""
    try:
        yield
    except InvalidStatus as error:
        raise HandshakeRefused(error.response.status_code, error.response.reason_phrase) from None
    except ssl.SSLCertVerificationError as error:
        raise UntrustedCertificate(
            f"the certificate of {host} is not trusted: {error.verify_message}",
            hint="for a relay-server, give its ca.pem with --ca-file or RELAY_CA_FILE; behind a TLS-inspecting proxy, "
            "the proxy's CA",
        ) from None
    except ssl.SSLError as error:
        raise RelayUnreachable(
            f"TLS with {host} failed: {error.reason or 'unknown reason'}",
            hint="check that the address and port are those of a relay",
        ) from None
    except TIMEOUT_ERRORS:
        raise RelayUnreachable(
            f"{host} did not answer within {timeout:g} s",
            hint="check the network and HTTPS_PROXY; a firewall must let 443 to *.servicebus.windows.net out",
        ) from None
    except socket.gaierror:
        raise RelayUnreachable(
            f"the name {host} cannot be resolved", hint="check the namespace's spelling and this machine's DNS"
        ) from None
    except ProxyError as error:
        raise RelayUnreachable(f"the proxy refused {host}: {error}", hint="check HTTPS_PROXY and NO_PROXY") from None
    except (InvalidProxy, InvalidURI) as error:
        raise ConfigurationError(
            "HTTPS_PROXY is unusable" if isinstance(error, InvalidProxy) else f"{host} is no address",
            hint="a proxy looks like http://proxy.example:3128",
        ) from None
    except OSError as error:
        raise RelayUnreachable(
            f"cannot connect to {host}: {_os_reason(error)}",
            hint="check that the relay runs and that the network allows outgoing connections to it",
        ) from None
    except (InvalidMessage, InvalidHandshake, EOFError) as error:
        if isinstance(error, EOFError) or isinstance(error.__cause__, (EOFError, ConnectionError)):
            raise RelayUnreachable(
                f"{host} ended the connection before it answered",
                hint="this passes by itself as a rule; a firewall or proxy in between may do it always",
            ) from None
        raise ProtocolError(
            f"{host} does not answer like a relay", hint="check the address; a proxy's login page looks like this too"
        ) from None


def _os_reason(error: OSError) -> str:
    """Return the reason without addresses: asyncio joins one text per address it tried."""
    if isinstance(error, ConnectionRefusedError) or "refused" in str(error).lower():
        return "connection refused"
    return (error.strerror or type(error).__name__).lower()
