"""Handles requests: listen, connect, accept and reject under `/$hc/`, and HTTP requests for a listener.

The order of checks is part of the protocol: token, existence of the hybrid connection, listeners. Without a valid
token, a client cannot discover which hybrid connections exist.

Invariant: a rendezvous is used once, without a lock. `_accept`, `_pair` and `_start_http` are not coroutines: between
the check that an address is unused and the result for the sender, nothing else can run. The same holds between the two
101 responses and the first byte that is relayed, so no byte can arrive that nobody handles. An `await` in any of them
breaks both.

Why the listener's request answers the sender, and not the sender's own task: the sender's 101 needs the listener's
choice of subprotocol and extensions, and bytes that either side sends right after its 101 must find the pair. The task
of the sender only waits for the outcome.

What is ugly: the relay hands a connection from one owner to another (request, budget of unauthenticated connections,
pair), and each of them may be the last to close it. So `serve` ends every connection whose request raises an unexpected
error, and `prove` is called once a token or a secret is valid, even if the request is then refused, as by the limit on
listeners.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable

from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.hyco.http import Request
from relay_server.access import Authorizer
from relay_server.config.model import HybridConnection, RelayConfig, Right
from relay_server.connection.request_reader import Handshake, HttpSender
from relay_server.connection.tcp import Connection, Handler, source_of
from relay_server.metrics import EntityCounters, EntityMetrics
from relay_server.protocol import refusals
from relay_server.protocol.http import RequestHead, error_answer, plain_answer, switching_protocols
from relay_server.protocol.refusals import Refusal
from relay_server.protocol.requests import (
    HttpRequest,
    HybridRequest,
    RelayRequest,
    error_phrase,
    guid_of,
    is_hybrid,
    new_guid,
)
from relay_server.relaying.control import ControlChannel
from relay_server.relaying.http_exchange import HttpExchange
from relay_server.relaying.matchmaking import Matchmaker
from relay_server.relaying.rendezvous import ControlResponse, HttpRendezvous, PendingSender, Rejection, RelayedPair

logger = logging.getLogger(__name__)


DELETED = "The hybrid connection was deleted"
SHUTTING_DOWN = "The relay is shutting down"
"""Reasons in Close frames for WebSockets: of a hybrid connection that was removed, and of all."""
HEAD_TIMEOUT = 10.0
"""Timeout in seconds for a request head; limits the sockets that idle peers occupy."""
LINGER = 1.0
"""Seconds for receiving the body of a refused HTTP request. Closing a socket with unread data resets the connection,
and the client may lose the response."""
MAX_TRACKED_PATH = 260
"""Maximum number of characters from the requested path in an error."""


class Gateway:
    """Serves new connections until their requests are answered.

    Args:
        config: The relay's configuration.
        authorizer: Checks tokens.
        public_address: Returns the `host:port` to which listeners connect for a rendezvous.
    """

    def __init__(self, config: RelayConfig, *, authorizer: Authorizer, public_address: Callable[[], str]) -> None:
        self.counters = EntityCounters()
        self.matchmaker = Matchmaker(config, self.counters)
        self._pairs: dict[RelayedPair, str | None] = {}
        """The path of each pair's hybrid connection; None if the hybrid connection was removed during the
        rendezvous."""
        self.refused = 0
        """Number of requests that the relay itself refused."""
        self._config = config
        self.is_draining = False
        """True while the relay shuts down."""
        self._idle: dict[Connection, None] = {}
        """Connections whose next request has not arrived, the oldest first."""
        self._listener_sources: Counter[str] = Counter()
        """Number of listeners, by address."""
        self._authorizer = authorizer
        self._public_address = public_address

    def has_listener(self, source: str) -> bool:
        """Return True if a listener is connected from this address."""
        return self._listener_sources[source] > 0

    def drain(self) -> None:
        """Refuse waiting senders, and close all WebSockets and connections that are waiting for another request."""
        self.is_draining = True
        self.matchmaker.rendezvous.refuse_all(refusals.shutting_down())
        for connection in list(self._idle):
            connection.close()
        self._close(SHUTTING_DOWN)

    def replace_rules(self, connections: Iterable[HybridConnection], authorizer: Authorizer) -> None:
        """Replace the hybrid connections, rules and issuers; close the WebSockets of removed hybrid connections."""
        registry = self.matchmaker.registry
        registry.replace_connections(connections)
        self._authorizer = authorizer
        kept = {connection.path.lower() for connection in registry.connections}
        self._close(DELETED, without=kept)

    def _close(self, reason: str, *, without: Collection[str] = ()) -> None:
        """Close the WebSockets of all hybrid connections but those with these paths, in lower case."""
        for control in self.matchmaker.registry.listeners:
            if control.hybrid_connection.path.lower() not in without:
                control.close(1001, reason)
        for pair, path in list(self._pairs.items()):
            if path is None or path.lower() not in without:
                pair.close(1001, reason)

    def evict_idle(self) -> bool:
        """Drop the connection that has waited longest for its next request; return False if there is none."""
        oldest = next(iter(self._idle), None)
        if oldest is None:
            return False
        del self._idle[oldest]
        oldest.abort()
        return True

    async def serve(self, handshake: Handshake) -> None:
        """Answer the requests of a connection; return when the last one is answered or the connection is lost."""
        following: Handshake | None = handshake
        limit = HEAD_TIMEOUT
        while following is not None:
            current = following
            try:
                following = await self._serve_one(current, limit)
            except Exception:
                # Without an answer, the client would wait until its own time limit.
                if current.is_unanswered:
                    self.refuse(current.connection, refusals.internal_error())
                else:
                    current.connection.abort()
                raise  # logged where the task was started
            limit = self._config.limits.http_timeout

    async def _serve_one(self, handshake: Handshake, limit: float) -> Handshake | None:
        """Answer a request; return the handler for the next request if the client may send one."""
        connection = handshake.connection
        self._idle[connection] = None
        try:
            async with timeout(limit):
                head = await handshake.head()
        except TIMEOUT_ERRORS:
            connection.abort()
            return None
        except Refusal as refusal:
            self.refuse(connection, refusal)
            return None
        finally:
            self._idle.pop(connection, None)
        if not is_hybrid(head):
            return await self._serve_http(head, handshake)
        request = HybridRequest.parse(head)
        try:
            await self._dispatch(request, handshake)
        except Refusal as refusal:
            of_listener = request.parameters.get("sb-hc-action", "").lower() == "listen"
            self._counters_of(request).count_refusal(of_listener=of_listener, status=refusal.status)
            self.refuse(
                connection, refusal, tracking=request.tracking, system=f"sb://{self._config.namespace}/{request.path}"
            )
        return None

    async def _serve_http(self, head: RequestHead, handshake: Handshake) -> Handshake | None:
        """Relay an HTTP request; return the handler for the next one if the client may send one."""
        tracking, path, counters = "", head.path.removeprefix("/"), self.counters.of(None)
        try:
            request = HttpRequest.parse(head)
            tracking, path, counters = request.tracking, request.path, self._counters_of(request)
            following = await self._answer_http(request, handshake)
        except Refusal as refusal:
            system = f"{self._config.namespace}:{path}"
            linger = LINGER if head.has_body else 0.0
            counters.count_refusal(of_listener=False, status=refusal.status)
            self.refuse(handshake.connection, refusal, tracking=tracking, system=system, linger=linger)
            return None
        if following is not None and self.is_draining:
            handshake.connection.close()
            return None
        return following

    def refuse(
        self, connection: Connection, refusal: Refusal, *, tracking: str = "", system: str = "", linger: float = 0.0
    ) -> None:
        """Send an error response and close the connection, after `linger` seconds."""
        self.refused += 1
        tracking = tracking or f"{new_guid()}_G0"
        system = (system or f"sb://{self._config.namespace}/")[:MAX_TRACKED_PATH]
        phrase = error_phrase(refusal.message, tracking=tracking, system=system, now=time.time())
        connection.write(error_answer(refusal, phrase, tracking=tracking))
        if linger:
            connection.handler = Handler()  # drops the body, so that the client reads the response
            connection.resume_reading()
            asyncio.get_running_loop().call_later(linger, connection.close)
        else:
            connection.close()

    async def _dispatch(self, request: HybridRequest, handshake: Handshake) -> None:
        accept = request.head.check_upgrade()
        action = request.action
        if action in {"accept", "request"}:
            self._accept(request, handshake, accept)
        elif action == "listen":
            self._listen(request, handshake, accept)
        else:
            await self._connect(request, handshake)

    def _authorize(self, request: RelayRequest, handshake: Handshake, right: Right) -> tuple[HybridConnection, float]:
        """Check a request's token; its connection then no longer counts as unauthenticated."""
        found = self._check(request, right, request.token)
        handshake.connection.prove()
        return found

    def _check(self, request: RelayRequest, right: Right, token: str | None) -> tuple[HybridConnection, float]:
        """Check a token against the current rules, which may have changed since a listener connected."""
        connection = self.matchmaker.registry.find(request.segments)
        expires_at = self._authorizer.check(
            token, right=right, path=request.path, connection=connection, now=time.time()
        )
        # Only after the token check; see the module's docstring.
        if connection is None:
            raise refusals.not_found()
        return connection, expires_at

    # Listen:

    def _listen(self, request: HybridRequest, handshake: Handshake, accept: str) -> None:
        hybrid_connection, expires_at = self._authorize(request, handshake, Right.LISTEN)
        listener_id = guid_of(request.parameters.get("sb-hc-id")) or new_guid()
        replaced = self.matchmaker.registry.check_room(hybrid_connection, listener_id)
        connection = handshake.connection
        if not connection.is_open:  # the client has disconnected
            return
        if replaced is not None:
            replaced.close(1011, "Replaced by a newer connection from the same listener")
        connection.write(switching_protocols(accept, tracking=request.tracking, subprotocol=None, extensions=None))
        control = ControlChannel(
            connection,
            hybrid_connection=hybrid_connection,
            listener_id=listener_id,
            expires_at=expires_at,
            renew=lambda token: self._check(request, Right.LISTEN, token)[1],
            limits=self._config.limits,
            ended=self._listener_ended,
        )
        self.matchmaker.registry.add(control)
        counters = self.counters.of(hybrid_connection.path)
        counters.listener_connections += 1
        counters.active_listeners += 1
        self._listener_sources[source_of(connection.remote[0])] += 1
        logger.info("listener connected on '%s': %s from %s:%d", hybrid_connection.path, control.id, *connection.remote)
        control.start(handshake.early())

    def _listener_ended(self, control: ControlChannel) -> None:
        self.matchmaker.registry.remove(control)
        counters = self.counters.of(control.hybrid_connection.path)
        counters.listener_disconnects += 1
        counters.active_listeners -= 1
        self._listener_sources.subtract([source_of(control.remote[0])])
        self._listener_sources = +self._listener_sources  # removes addresses without listeners
        logger.info("listener disconnected on '%s': %s", control.hybrid_connection.path, control.id)

    # Connect:

    async def _connect(self, request: HybridRequest, handshake: Handshake) -> None:
        hybrid_connection, _ = self._authorize(request, handshake, Right.SEND)
        candidates = self.matchmaker.candidates(hybrid_connection, request)
        limits = self._config.limits
        with self.matchmaker.pending(hybrid_connection, request, handshake) as pending:
            message = request.accept_message(
                public=self._public_address(),
                identity=pending.id,
                secret=pending.secret,
                remote=handshake.connection.remote,
            )
            timed_out = refusals.accept_timed_out(limits.accept_timeout_status)
            outcome = await self.matchmaker.offer(candidates, message, pending, limits.accept_timeout, timed_out)
        if isinstance(outcome, Rejection):
            self._reject(hybrid_connection, pending, outcome)

    def _reject(self, hybrid_connection: HybridConnection, pending: PendingSender, rejection: Rejection) -> None:
        """Forward a listener's rejection to the sender."""
        self.counters.of(hybrid_connection.path).rejected += 1
        logger.info("a listener rejected sender %s with status %d", pending.id, rejection.status)
        connection = pending.handshake.connection
        connection.write(plain_answer(rejection.status, rejection.reason, tracking=pending.request.tracking))
        connection.close()

    # Accept and reject:

    def _accept(self, request: HybridRequest, handshake: Handshake, accept: str) -> None:
        rejection = request.rejection()
        pending = self.matchmaker.rendezvous.take(request.parameters.get("sb-hc-id"), request.secret)
        if pending is None or pending.outcome.done() or not pending.handshake.connection.is_open:
            raise refusals.bad_request("The rendezvous is unknown, has ended, or was already used")
        is_http = isinstance(pending.request, HttpRequest)
        if is_http != (request.action == "request"):
            raise refusals.bad_request("The sb-hc-action does not match the rendezvous")
        handshake.connection.prove()
        if rejection is not None:
            pending.outcome.set_result(Rejection(*rejection))
            handshake.connection.write(plain_answer(410, "Gone", tracking=request.tracking))
            handshake.connection.close()
            return
        if is_http:
            self._start_http(pending, request, handshake, accept)
            return
        self._pair(pending, request, handshake, accept)
        pending.outcome.set_result(None)

    def _start_http(self, pending: PendingSender, request: HybridRequest, handshake: Handshake, accept: str) -> None:
        """Answer a listener's handshake with 101 and pass its connection to the exchange."""
        connection = handshake.connection
        connection.write(switching_protocols(accept, tracking=request.tracking, subprotocol=None, extensions=None))
        listener = HttpRendezvous(connection, limits=self._config.limits)
        pending.outcome.set_result(listener)
        listener.start(handshake.early())

    def _pair(self, pending: PendingSender, request: HybridRequest, handshake: Handshake, accept: str) -> None:
        """Answer both handshakes with 101 and start relaying."""
        # Both responses have the same subprotocol and extensions: the two WebSockets are one connection end to end.
        subprotocol = (request.head.header("Sec-WebSocket-Protocol") or "").split(",")[0].strip() or None
        extensions = request.head.header("Sec-WebSocket-Extensions")
        its_upgrade = pending.request.head.check_upgrade()
        sides = (pending.handshake, pending.request, its_upgrade), (handshake, request, accept)
        for side, its_request, its_accept in sides:
            answer = switching_protocols(
                its_accept, tracking=its_request.tracking, subprotocol=subprotocol, extensions=extensions
            )
            side.connection.write(answer)
        path = self._path_of(pending.request)
        pair = RelayedPair(
            pending.handshake.connection,
            handshake.connection,
            extensions_agreed=bool(extensions),
            limits=self._config.limits,
            counters=self.counters.of(path),
            ended=self._pair_ended,
        )
        self._pairs[pair] = path
        pair.counters.sender_connections += 1
        pair.counters.active_senders += 1
        logger.info("relaying sender %s from %s:%d", pending.id, *pending.handshake.connection.remote)
        pair.start(pending.handshake.early(), handshake.early())

    def _pair_ended(self, pair: RelayedPair) -> None:
        del self._pairs[pair]
        pair.counters.sender_disconnects += 1
        pair.counters.active_senders -= 1
        logger.info("relayed %d bytes to the listener and %d bytes back", pair.bytes_to_listener, pair.bytes_to_sender)

    # HTTP requests that are not under `/$hc/`; the body is read after the checks:

    async def _answer_http(self, request: HttpRequest, handshake: Handshake) -> Handshake | None:
        """Relay a request; return the handler for the next one if the client may send one.

        Raises:
            Refusal: The request is to be answered with an error.
        """
        hybrid_connection, _ = self._authorize(request, handshake, Right.SEND)
        self.matchmaker.candidates(hybrid_connection, request)  # raises if there are none, before the body is read
        sender = HttpSender(handshake, request.head)
        exchange = HttpExchange(request, sender, host=self._config.namespace, limits=self._config.limits)
        try:
            await self._exchange(hybrid_connection, request, handshake, exchange)
        except Refusal:
            if not exchange.responded:
                raise
            handshake.connection.abort()  # the only way to show that the response is incomplete
            return None
        finally:
            counters = self.counters.of(hybrid_connection.path)
            counters.bytes_to_listeners += exchange.bytes_to_listener
            counters.bytes_to_senders += exchange.bytes_to_sender
        if exchange.responded and exchange.keeps_alive:
            return sender.next_handshake()
        handshake.connection.close()
        return None

    async def _exchange(
        self, hybrid_connection: HybridConnection, request: HttpRequest, handshake: Handshake, exchange: HttpExchange
    ) -> None:
        limits = self._config.limits
        with self.matchmaker.pending(hybrid_connection, request, handshake) as pending:
            body = await exchange.small_body()
            short, full = self._request_messages(hybrid_connection, request, pending)
            candidates = self.matchmaker.candidates(hybrid_connection, request)
            control, complete = _send_request(candidates, short, full, body)
            if complete:
                control.expect_response(pending)
                exchange.bytes_to_listener += len(body or b"")
            try:
                limit = limits.http_timeout if complete else limits.accept_timeout
                outcome = await self.matchmaker.outcome(pending, limit, refusals.response_timed_out())
            finally:
                control.forget_request(pending)
        if isinstance(outcome, Rejection):
            self._reject(hybrid_connection, pending, outcome)
        elif isinstance(outcome, ControlResponse):
            await exchange.respond(outcome.response, outcome.body)
        elif isinstance(outcome, HttpRendezvous):
            await exchange.relay(outcome, None if complete else full)
        self.counters.of(hybrid_connection.path).http_requests += exchange.responded

    def _request_messages(
        self, hybrid_connection: HybridConnection, request: HttpRequest, pending: PendingSender
    ) -> tuple[str, Callable[[bool], str]]:
        """Return the `request` message in the short form, and what returns the full one with or without a body."""
        address = request.address("request", public=self._public_address(), identity=pending.id, secret=pending.secret)

        def full(has_body: bool) -> str:
            return request.message(
                address=address,
                identity=pending.id,
                host=self._config.namespace,
                remote=pending.handshake.connection.remote,
                has_body=has_body,
                needs_token=hybrid_connection.requires_client_authorization,
            )

        return Request(address).encode(), full

    # Metrics:

    def _path_of(self, request: RelayRequest) -> str | None:
        """Return the path of the requested hybrid connection; None if it is not configured."""
        connection = self.matchmaker.registry.find(request.segments)
        return None if connection is None else connection.path

    def _counters_of(self, request: RelayRequest) -> EntityMetrics:
        return self.counters.of(self._path_of(request))

    def metrics(self) -> dict[str, EntityMetrics]:
        """Return a snapshot of each hybrid connection, by its label in EntityCounters."""
        for connection in self.matchmaker.registry.connections:  # each metric exists before the first request
            self.counters.of(connection.path)
        return self.counters.snapshot()


def _send_request(
    candidates: list[ControlChannel], short: str, full: Callable[[bool], str], body: bytes | None
) -> tuple[ControlChannel, bool]:
    """Send a request to the first listener that can receive it.

    Returns:
        The listener, and whether it was sent the whole request rather than an address at which to receive it.

    Raises:
        Refusal: There is no such listener, or the request headers are too large.
    """
    for control in candidates:
        complete = body is not None and (not body or control.takes_bodies)
        message = full(bool(body)) if complete else short
        if control.offer(message, (body or b"") if complete else b""):
            return control, complete
    raise refusals.no_listeners()
