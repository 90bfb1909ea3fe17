"""Opens WebSockets: dials the server, and performs the opening handshake with the `websockets` package's machine.

After the handshake, `relay_core.net.websocket.connection` takes over the connection, because the package's own asyncio
layer takes more time per message than the rest of the path (see `make bench`).

A dial that takes long is repeated while it continues, and the first of them to succeed is used. On the live service,
according to public measurements, an opening usually takes 0.4 to 0.75 s, but one in ten to forty takes 3 to 7 s, and
some are never answered: the time is in the service, and a second dial is usually answered at once. What is repeated
depends on the request. A sender's request is repeated as a whole. A listener's is sent once: the address of a
rendezvous is valid for one request, and a second control channel would be a second listener. So only its connection is
dialled again, up to TLS.

Why a budget for repeated dials: when the relay itself is slow, all dials are, and twice as many would make it slower.

Three things are required for correctness and security: no extensions (the relay echoes extension offers as if they
were agreed), no redirects (they would send the token to another host), and a logger that never logs at DEBUG level
(which would include headers with tokens).
"""

from __future__ import annotations

import asyncio
import functools
import logging
import ssl
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from relay_core.compat import timeout as time_limit
from relay_core.hyco.backoff import AttemptBudget
from relay_core.net.memory import shared_read_buffer
from relay_core.net.tasks import first_success
from relay_core.net.tls import TlsTransport
from relay_core.net.websocket.connection import WebSocket
from relay_core.net.websocket.dialing import BLANK_LINE, USER_AGENT, OpeningSteps, dial
from relay_core.net.websocket.opening_errors import OPEN_TIMEOUT, HandshakeRefused, opening_mapped

logger = logging.getLogger(__name__)

AGAIN_AFTER = (0.8, 0.6)
"""Seconds from one dial to the next. The first is more than an opening usually takes; with the second, a connection
whose first two dials hang is open within 2 s."""
_further_dials = AttemptBudget(rate=1.0, burst=8.0)
"""Of the whole process: an overloaded relay gets at most one additional dial per second."""

_quiet_logger = logging.Logger("handshake", logging.CRITICAL + 1)  # noqa: LOG001 - no configuration can enable it


@dataclass
class ServerAnswer:
    """What an opening handshake without credentials has revealed about a server."""

    steps: OpeningSteps = field(default_factory=OpeningSteps)
    """How far the handshake got, and how long each step took."""
    certificate: bytes | None = None
    """The server's certificate (DER); None if TLS was not established."""
    status: int | None = None
    """HTTP status; None if the answer was not HTTP."""
    date: str | None = None
    """Value of the Date header."""


class _Attempt(asyncio.BufferedProtocol):
    """One dial and its opening handshake: sends the request, and keeps what follows the response for another driver.

    Args:
        url: Used verbatim.
        tls: The context that verifies the server's certificate.
        headers: Added to the request.
        subprotocols: Offered in this order.
    """

    def __init__(
        self, url: str, tls: ssl.SSLContext, headers: Mapping[str, str] | None = None, subprotocols: Sequence[str] = ()
    ) -> None:
        self.steps = OpeningSteps()
        self.transport = cast("TlsTransport", None)  # set by connect, before anything else is called
        self._machine = ClientProtocol(
            parse_uri(url), subprotocols=[Subprotocol(name) for name in subprotocols] or None, logger=_quiet_logger
        )
        self._tls = tls
        self._headers = headers or {}
        self._early = b""
        """Bytes after the response."""
        self._tail = b""
        """The last bytes of the response so far, because the blank line after its head may arrive in parts."""
        self._buffer = shared_read_buffer()
        self._answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def connect(self) -> _Attempt:
        """Establish TLS and return this attempt; raises the errors of `dial`."""
        self.transport = await dial(self._machine.uri, self, tls=self._tls, steps=self.steps)
        return self

    async def request(self) -> WebSocket:
        """Send the request, and return the WebSocket when the server has accepted it.

        Raises:
            InvalidHandshake: The response is not 101, or not valid.
        """
        request = self._machine.connect()
        request.headers.update(self._headers)
        request.headers.setdefault("User-Agent", USER_AGENT)
        self._machine.send_request(request)
        try:
            with self.steps.step("response"):
                self.transport.write(b"".join(self._machine.data_to_send()))
                await self._answered
            if self._machine.handshake_exc is not None:
                raise self._machine.handshake_exc
            return WebSocket(self.transport, subprotocol=self._machine.subprotocol, early=self._early)
        except BaseException:  # also if cancelled: nothing else would close the connection
            self.abort()
            raise

    def abort(self) -> None:
        """Drop the connection."""
        self.transport.abort()

    # Called by the transport:

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._buffer[:nbytes])
        # Without this split, the machine would consume frames that arrive together with the response.
        seen = self._tail + data
        head = seen.find(BLANK_LINE)
        self._tail = seen[1 - len(BLANK_LINE) :]
        end = len(data) if head < 0 else head + len(BLANK_LINE) - (len(seen) - len(data))
        if self._machine.state is State.CONNECTING:
            self._machine.receive_data(data[:end])
            data = data[end:]
        if data and self._machine.state is State.OPEN:
            self._early += data
        elif data:  # the body of a refusal
            self._machine.receive_data(data)
        self._check()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the machine has its own error for it
        self._machine.receive_eof()
        self._check()

    def _check(self) -> None:
        is_answered = bool(self._machine.events_received()) or self._machine.handshake_exc is not None
        if is_answered and not self._answered.done():
            self._answered.set_result(None)


_repeated = functools.partial(
    first_success,
    again_after=AGAIN_AFTER,
    may_repeat=lambda: _further_dials.take(time.monotonic()),
    is_final=lambda error: isinstance(error, InvalidStatus),
)


async def open_websocket(
    url: str,
    *,
    tls: ssl.SSLContext,
    headers: Mapping[str, str] | None = None,
    subprotocols: Sequence[str] = (),
    timeout: float = OPEN_TIMEOUT,
    is_repeatable: bool = False,
) -> WebSocket:
    """Connect to a `wss://` URL, through the proxy in `HTTPS_PROXY` unless `NO_PROXY` excludes the host.

    Args:
        url: Used verbatim.
        tls: The context that verifies the server's certificate.
        headers: Added to the request; may contain secrets.
        subprotocols: Offered in this order.
        timeout: Seconds for name resolution, TCP, TLS and upgrade together, from the first dial on.
        is_repeatable: Whether the request may be sent several times; the first connection to be accepted is used.

    Raises:
        HandshakeRefused: the server responded with a status other than 101.
        RelayUnreachable, UntrustedCertificate, ConfigurationError, ProtocolError: no valid HTTP response.
        RelayDebugError: an unexpected error, named by its type.
    """
    host = url.split("/", 3)[2]
    attempts: list[_Attempt] = []

    def connect() -> Coroutine[Any, Any, _Attempt]:
        attempts.append(_Attempt(url, tls, headers, subprotocols))
        return attempts[-1].connect()

    async def connect_and_request() -> WebSocket:
        return await (await connect()).request()

    started = time.monotonic()
    try:
        with opening_mapped(host, timeout, may_use_proxy=True):
            async with time_limit(timeout):
                if is_repeatable:
                    return await _repeated(connect_and_request, discard=WebSocket.abort)
                connected = await _repeated(connect, discard=_Attempt.abort)
                return await connected.request()
    finally:
        dials = " | ".join(str(attempt.steps) for attempt in attempts)
        logger.debug("dialled %s for %.3f s: %s", host, time.monotonic() - started, dials)


async def ask_server(url: str, answer: ServerAnswer, *, tls: ssl.SSLContext, timeout: float = OPEN_TIMEOUT) -> None:
    """Perform the opening handshake of `open_websocket` once, without credentials, and record what the server shows.

    Args:
        url: A URL at which nothing listens, because an accepted connection is closed at once.
        answer: Filled in as far as the handshake gets, even if it fails.
        tls: May leave the certificate unverified, because nothing secret is sent.
        timeout: Seconds.

    Raises:
        ProxyRefused: The proxy did not connect to the server.
        RelayDebugError: As in `open_websocket`, except that an HTTP status is not an error.
    """
    try:
        with opening_mapped(url.split("/", 3)[2], timeout, may_use_proxy=True):
            async with time_limit(timeout):
                attempt = _Attempt(url, tls)
                answer.steps = attempt.steps
                await attempt.connect()
                answer.certificate = attempt.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
                websocket = await attempt.request()
        answer.status = 101
        websocket.abort()
    except HandshakeRefused as refused:
        answer.status, answer.date = refused.status, refused.date
