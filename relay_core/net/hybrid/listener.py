"""The listener's side of a hybrid connection: a control channel that reconnects, and the offers received on it.

`relay_core.hyco.listener` decides when to connect, renew and give up. This module does the I/O.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Callable
from urllib.parse import unquote, urlsplit

from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConnectionLost, HybridConnectionNotFound, ProtocolError, RelayDebugError, TooManyListeners
from relay_core.hyco.address import TOKEN_HEADER, Endpoint, reject_url, strip_parameters
from relay_core.hyco.backoff import refused_for_now
from relay_core.hyco.family import SiblingOrder, no_sibling_left
from relay_core.hyco.http import Request, find_header
from relay_core.hyco.listener import ListenerState, ListenerStateMachine
from relay_core.hyco.messages import MAX_CONTROL_BYTES, Accept, RenewToken, parse_server_message
from relay_core.hyco.outcome import closed_error, refused_listen
from relay_core.hyco.sas import Credential, Token
from relay_core.net.hybrid.http import HttpHandler, HttpService
from relay_core.net.relay_tls import client_tls
from relay_core.net.tasks import TaskSet, frames_of
from relay_core.net.websocket.connection import WebSocket
from relay_core.net.websocket.handshake import open_websocket
from relay_core.net.websocket.opening_errors import HandshakeRefused

logger = logging.getLogger(__name__)


# An offer: a sender that is waiting to be accepted or rejected.


class Offer:
    """A sender's connection request, to be accepted or rejected once, within 30 seconds."""

    def __init__(self, message: Accept, endpoint: Endpoint, tls: ssl.SSLContext) -> None:
        self.id = message.id
        """The relay's tracking id, `GUID_Gn`."""
        self.headers = message.connect_headers
        """The sender's request headers without its token. They may contain cookies and must not be logged."""
        self.remote_endpoint = message.remote_endpoint
        """The sender's network address as seen by the relay."""
        self._message = message
        self._endpoint = endpoint
        self._tls = tls

    @property
    def path(self) -> str:
        """The rest of the sender's path after the hybrid connection's name, e.g. `/logs`, or ""."""
        path = unquote(urlsplit(self._message.address).path)
        return path[len(f"/$hc/{self._endpoint.path}") :]

    @property
    def query(self) -> str:
        """The sender's query string without the protocol's own parameters, otherwise unchanged."""
        return strip_parameters(urlsplit(self._message.address).query)

    def header(self, name: str) -> str | None:
        """Return the sender's header `name` (case-insensitive), or None."""
        return find_header(self.headers, name)

    async def accept(self) -> WebSocket:
        """Open the rendezvous with the sender.

        Raises:
            ConnectionLost: The sender has disconnected or was not accepted in time.
            RelayUnreachable, UntrustedCertificate: The rendezvous address cannot be reached.
        """
        # Like the official listeners, select the first subprotocol that the sender offers.
        offered = self.header("Sec-WebSocket-Protocol") or ""
        first = offered.split(",")[0].strip()
        try:
            return await open_websocket(self._message.address, tls=self._tls, subprotocols=[first] if first else [])
        except HandshakeRefused as refusal:
            raise ConnectionLost(
                f"the sender disconnected before it was accepted ({refusal.status})", reason=refusal.reason
            ) from None

    async def reject(self, status: int, reason: str) -> None:
        """Reject the sender, which receives `status` (100-999) and `reason` as the HTTP response to its handshake.

        If the relay cannot be reached, no error is raised; the sender's request ends at the relay's time limit.
        """
        try:
            websocket = await open_websocket(
                reject_url(self._message.address, status=status, reason=reason), tls=self._tls
            )
        except (HandshakeRefused, RelayDebugError):
            return  # the normal case: the relay answers 410 Gone after it has forwarded the rejection
        websocket.abort()


MAX_WAITING_OFFERS = 256
"""Maximum number of offers waiting for the owner. More could not be accepted within the relay's limit of 30 s."""


StateCallback = Callable[[ListenerState, "RelayDebugError | None"], None]


class HybridConnectionListener:
    """Listens on a hybrid connection until closed, and reconnects when the connection is lost.

        async with HybridConnectionListener(endpoint, credential) as listener:
            async for offer in listener:  # WebSockets
                ws = await offer.accept()

        async def handle(request: HttpRequest) -> HttpResponse:
            return HttpResponse(200, await request.read())

        async with HybridConnectionListener(endpoint, credential, handler=handle) as listener:
            await listener.serve_http()

    Args:
        endpoint: The hybrid connection. In a family, the first hybrid connection with room is used.
        credential: A credential with the Listen right.
        handler: Answers HTTP requests, which are served as soon as they arrive; without it, they are refused with 501.
        listener_id: GUID by which senders can select this listener; random by default.
        tls: TLS context; by default it trusts the system's certificate authorities and `RELAY_CA_FILE`.
        on_state: Called with each new state and the error that led to it, or None.
        is_needed: Returns whether somebody is waiting for this listener; retries are then prompt.
        has_listened: Whether a listener with the same settings, which this one replaces, has listened.
        role_grace: Seconds for which a refusal by the relay may be temporary; by default those of the credential.

    Iteration yields offers. It ends after `close()`, or raises the permanent error that stopped the listener.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        credential: Credential,
        *,
        handler: HttpHandler | None = None,
        listener_id: str | None = None,
        tls: ssl.SSLContext | None = None,
        on_state: StateCallback | None = None,
        is_needed: Callable[[], bool] = lambda: False,
        has_listened: bool = False,
        role_grace: float | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.listener_id = listener_id or str(uuid.uuid4())
        self._credential = credential
        self._tls = tls or client_tls()
        self._on_state = on_state or (lambda _state, _error: None)
        self._is_needed = is_needed
        self._machine = ListenerStateMachine(
            now=time.monotonic(),
            random=random.random,
            role_grace=credential.role_grace if role_grace is None else role_grace,
            has_listened=has_listened,
        )
        self._order = SiblingOrder(endpoint.size, random.random)
        self._refused_until = (0.0, "")
        """Time at which retries with a refused identity end, on the monotonic clock and as text. The text is stored so
        that all messages show the same time although the two clocks drift."""
        self._offers: asyncio.Queue[Offer | None] = asyncio.Queue()
        self._tasks = TaskSet()
        self._http = HttpService(handler, tls=self._tls)

    @property
    def state(self) -> ListenerState:
        """State of the control channel."""
        return self._machine.state

    @property
    def is_replacing_token(self) -> bool:
        """Whether the relay refused a token that may have expired; the next attempt uses a new token."""
        return self._machine.is_replacing_token

    async def __aenter__(self) -> HybridConnectionListener:
        self._tasks.spawn(self._run(), name=f"listen {self.endpoint.path}")
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the control channel at once, so that the relay announces no further senders."""
        await self._tasks.cancel_all()
        await self._http.close()
        self._machine.ended()
        self._offers.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[Offer]:
        while (offer := await self._offers.get()) is not None:
            yield offer
        if self._machine.error is not None:
            raise self._machine.error

    async def serve_http(self) -> None:
        """Serve HTTP requests until `close()`, and reject WebSockets; for a listener that expects only requests.

        Raises:
            RelayDebugError: A permanent error stopped the listener.
        """
        async for offer in self:
            await offer.reject(400, "only HTTP requests are served here")

    async def _run(self) -> None:
        machine = self._machine
        while machine.state is not ListenerState.ENDED:
            machine.dialling()
            try:
                await self._listen_once()
            except RelayDebugError as error:
                self._failed(error)
            except Exception as error:  # noqa: BLE001 - whoever waits for offers must not wait for a dead runner
                logger.debug("unexpected error on the control channel: %s", frames_of(error))
                self._failed(_unexpected(error, self.endpoint))
            if machine.state is ListenerState.WAITING:
                await asyncio.sleep(max(0.0, machine.retry_at - time.monotonic()))
        self._offers.put_nowait(None)

    def _failed(self, error: RelayDebugError) -> None:
        self._machine.failed(error, now=time.monotonic(), needed=self._is_needed())
        self._on_state(self._machine.state, self._explain(self._machine.error or error))

    def _explain(self, error: RelayDebugError) -> RelayDebugError:
        """Return the error to report, with the time at which retries end, if they do."""
        until = self._machine.refused_until
        if until is None or self._machine.state is not ListenerState.WAITING:
            return error
        if until != self._refused_until[0]:
            wall_clock = time.time() + until - time.monotonic()
            self._refused_until = (until, time.strftime("%H:%M", time.localtime(wall_clock)))
        return refused_for_now(error, self._refused_until[1])

    async def _listen_once(self) -> None:
        """Open the control channel and serve it; always raises the error that ended it."""
        # A listener that is replaced by the relay's 24-hour recycle also ends here, with code 1011, and reconnects.
        endpoint, token, control = await self._open()
        try:
            self._machine.opened(now=time.monotonic(), token_lifetime=_lifetime(token))
            self._on_state(self._machine.state, None)
            await self._serve(control, endpoint)
        except ConnectionLost as lost:
            raise closed_error(lost.code, lost.reason, endpoint, closed_here=lost.closed_here) from None
        finally:
            await control.close()

    async def _open(self) -> tuple[Endpoint, Token, WebSocket]:
        """Open the control channel; in a family, on the first hybrid connection that exists and has room."""
        siblings, refusals = self.endpoint.siblings, list[RelayDebugError]()
        for index in self._order.indexes():
            try:
                opened = await self._open_at(siblings[index])
            # Only these two errors concern a single sibling; any other error would occur at all of them.
            except (TooManyListeners, HybridConnectionNotFound) as refusal:
                logger.debug("cannot listen on '%s': %s", siblings[index].path, refusal.sentence)
                refusals.append(refusal)
            else:
                self._order.accepted(index)
                return (siblings[index], *opened)
        raise no_sibling_left(refusals, self.endpoint)

    async def _open_at(self, endpoint: Endpoint) -> tuple[Token, WebSocket]:
        token = await self._credential.token(endpoint)
        try:
            control = await open_websocket(
                endpoint.listen_url(self.listener_id), tls=self._tls, headers={TOKEN_HEADER: token.value}
            )
        except HandshakeRefused as refusal:
            if refusal.status in {401, 403}:
                # A cached token may have expired or been revoked: the next attempt uses a new one, and only its refusal
                # shows that the credential is wrong.
                self._credential.refused()
            raise refused_listen(refusal.status, refusal.reason, endpoint) from None
        return token, control

    async def _serve(self, control: WebSocket, endpoint: Endpoint) -> None:
        incomplete: Request | None = None  # a request whose body is the next message
        while True:
            try:
                async with timeout(self._until_renewal()):
                    message = await control.receive(limit=MAX_CONTROL_BYTES)
            except TIMEOUT_ERRORS:
                # The service closes the channel when its token expires, so a renewal must arrive before that.
                await self._renew(control, endpoint)
                continue
            request, incomplete = incomplete, None
            if isinstance(message, str):
                request = self._handle(message, endpoint)
                if request is not None and request.has_body:
                    incomplete = request
                elif request is not None:
                    self._http.serve(request, b"", control)
            elif request is not None:
                self._http.serve(request, message, control)

    def _until_renewal(self) -> float | None:
        renew_at = self._machine.renew_at
        return None if renew_at is None else max(0.0, renew_at - time.monotonic())

    async def _renew(self, control: WebSocket, endpoint: Endpoint) -> None:
        token = await self._credential.token(endpoint)
        await control.send(RenewToken(token.value).encode())
        self._machine.renewed(now=time.monotonic(), token_lifetime=_lifetime(token))

    def _handle(self, message: str, endpoint: Endpoint) -> Request | None:
        """Queue an offer or return an HTTP request; an invalid message is logged and otherwise ignored."""
        try:
            parsed = parse_server_message(message)
        except ProtocolError as error:
            logger.warning("ignored an invalid control message from %s: %s", self.endpoint.host, error.sentence)
            return None
        if not isinstance(parsed, Accept):
            return parsed
        # The sender gets the relay's timeout. Rejecting would open a connection for each, which a flood could exploit.
        if self._offers.qsize() >= MAX_WAITING_OFFERS:
            logger.warning("dropped an offer: %d offers are already waiting", MAX_WAITING_OFFERS)
            return None
        self._offers.put_nowait(Offer(parsed, endpoint, self._tls))
        return None


def _unexpected(error: Exception, endpoint: Endpoint) -> RelayDebugError:
    # Show only the type: the text of an exception from a library may contain a token.
    return RelayDebugError(
        f"listening on '{endpoint.path}' failed: unexpected {type(error).__name__}",
        hint="use --verbose to log where it occurred",
    )


def _lifetime(token: Token) -> float | None:
    """Return the remaining lifetime of a token in seconds; None if it does not expire."""
    # The expiry is wall-clock time; everything else here uses monotonic time.
    return None if token.expires_at is None else token.expires_at - time.time()
