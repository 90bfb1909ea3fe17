"""Serves HTTP requests that are not under `/$hc/`: they are relayed to a listener.

The order of checks is that of `relay_server.gateway`: token, existence of the hybrid connection, listeners. The body is
read after these checks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from relay_core.hyco.http import Request
from relay_server.config.model import HybridConnection, RelayConfig
from relay_server.connection.request_reader import Handshake, HttpSender
from relay_server.metrics import EntityCounters
from relay_server.protocol.http import plain_answer
from relay_server.protocol.refusals import Refusal, no_listeners, response_timed_out
from relay_server.protocol.requests import HttpRequest
from relay_server.relaying.control import ControlChannel
from relay_server.relaying.http_exchange import HttpExchange, RequestMessages
from relay_server.relaying.matchmaking import Matchmaker
from relay_server.relaying.rendezvous import SECRET_PARAMETER, ControlResponse, HttpRendezvous, PendingSender, Rejection

__all__ = ["HttpGateway"]


class HttpGateway:
    """Relays HTTP requests.

    Args:
        config: The relay's configuration.
        matchmaker: Listeners and waiting senders.
        authorize: Checks a request's token and returns the hybrid connection; raises Refusal.
        public_address: Returns the `host:port` to which listeners connect for a rendezvous.
        counters: The counters of each hybrid connection, to which this object adds.
    """

    def __init__(
        self,
        config: RelayConfig,
        *,
        matchmaker: Matchmaker,
        authorize: Callable[[HttpRequest], Awaitable[HybridConnection]],
        public_address: Callable[[], str],
        counters: EntityCounters,
    ) -> None:
        self._config = config
        self._matchmaker = matchmaker
        self._authorize = authorize
        self._public_address = public_address
        self._counters = counters

    async def serve(self, request: HttpRequest, handshake: Handshake) -> Handshake | None:
        """Relay a request; return the handler for the next one if the client may send one.

        Raises:
            Refusal: The request is to be answered with an error.
        """
        hybrid_connection = await self._authorize(request)
        handshake.connection.prove()
        self._matchmaker.candidates(hybrid_connection, request)  # raises if there are none, before the body is read
        sender = HttpSender(handshake, request.head)
        exchange = HttpExchange(request, sender, host=self._config.namespace, limits=self._config.limits)
        try:
            await self._relay(hybrid_connection, request, handshake, exchange)
        except Refusal:
            if not exchange.responded:
                raise
            handshake.connection.abort()  # the only way to show that the response is incomplete
            return None
        finally:
            counters = self._counters.of(hybrid_connection.path)
            counters.bytes_to_listeners += exchange.bytes_to_listener
            counters.bytes_to_senders += exchange.bytes_to_sender
        if exchange.responded and exchange.keeps_alive:
            return sender.next_handshake()
        handshake.connection.close()
        return None

    async def _relay(
        self, hybrid_connection: HybridConnection, request: HttpRequest, handshake: Handshake, exchange: HttpExchange
    ) -> None:
        limits = self._config.limits
        with self._matchmaker.pending(hybrid_connection, request, handshake) as pending:
            body = await exchange.small_body()
            await self._matchmaker.delay()
            messages = self._request_messages(hybrid_connection, request, pending)
            control, complete = _send_request(self._matchmaker.candidates(hybrid_connection, request), messages, body)
            if complete:
                control.expect_response(pending)
                exchange.bytes_to_listener += len(body or b"")
            try:
                limit = limits.http_timeout if complete else limits.accept_timeout
                outcome = await self._matchmaker.outcome(pending, limit, response_timed_out())
            finally:
                control.forget_request(pending)
        if isinstance(outcome, Rejection):
            self._counters.of(hybrid_connection.path).rejected += 1
            self._reject(pending, outcome)
        elif isinstance(outcome, ControlResponse):
            await exchange.respond(outcome.response, outcome.body)
        elif isinstance(outcome, HttpRendezvous):
            await exchange.relay(outcome, None if complete else messages)
        self._counters.of(hybrid_connection.path).http_requests += exchange.responded

    def _reject(self, pending: PendingSender, rejection: Rejection) -> None:
        """Forward a listener's rejection."""
        connection = pending.handshake.connection
        connection.write(plain_answer(rejection.status, rejection.reason, tracking=pending.request.tracking))
        connection.close()

    def _request_messages(
        self, hybrid_connection: HybridConnection, request: HttpRequest, pending: PendingSender
    ) -> RequestMessages:
        address = request.address(
            "request",
            public=self._public_address(),
            identity=pending.id,
            secret=(SECRET_PARAMETER, pending.secret),
        )

        def full(has_body: bool) -> str:
            return request.message(
                address=address,
                identity=pending.id,
                host=self._config.namespace,
                remote=pending.handshake.connection.remote,
                has_body=has_body,
                needs_token=hybrid_connection.requires_client_authorization,
            )

        return RequestMessages(Request(address).encode(), full)


def _send_request(
    candidates: list[ControlChannel], messages: RequestMessages, body: bytes | None
) -> tuple[ControlChannel, bool]:
    """Send a request to the first listener that can receive it.

    Returns:
        The listener, and whether it was sent the whole request rather than an address at which to receive it.

    Raises:
        Refusal: There is no such listener, or the request headers are too large.
    """
    for control in candidates:
        complete = body is not None and (not body or control.takes_bodies)
        message = messages.full(bool(body)) if complete else messages.short
        if control.offer(message, (body or b"") if complete else b""):
            return control, complete
    raise no_listeners()
