"""A listener's control channel: sends offers and HTTP requests, receives new tokens and HTTP responses.

The channel is closed with these documented codes:

    1001  the relay is shutting down              1008  the token expired, or the new token was refused
    1002  the listener violated the protocol      1009  a control message is too long
    1011  recycled, as Azure does every 24 hours
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from relay_core.errors import ProtocolError
from relay_core.hyco.http import MAX_CONTROL_BODY, Response
from relay_core.hyco.messages import MAX_CONTROL_BYTES, RenewToken, parse_listener_message
from relay_core.ws.frames import BINARY, CONTINUATION, TEXT, Chunk, close_payload
from relay_server.config.model import HybridConnection, Limits
from relay_server.connection.tcp import Connection
from relay_server.connection.websocket import Owner, WebSocket
from relay_server.protocol.refusals import Refusal
from relay_server.relaying.rendezvous import ControlResponse, PendingSender

logger = logging.getLogger(__name__)

MAX_BACKLOG = 1024 * 1024
"""Maximum number of bytes of unread offers; a listener that exceeds it is disconnected."""
MAX_BODY_BACKLOG = MAX_BACKLOG // 2
"""If at least this many bytes of offers are unread, request bodies are not sent on the control channel, so that a
listener that receives many requests at once is not disconnected."""
RECYCLE_REASON = "InternalServerError: NameRenewalFailed"
"""The reason that Azure sends when it recycles a listener."""


class ControlChannel(Owner):
    """A connected listener.

    Args:
        connection: The connection, after the 101 response.
        hybrid_connection: The hybrid connection that it listens on.
        listener_id: The GUID by which senders can select it.
        expires_at: When its token expires, in Unix seconds.
        renew: Checks a new token, and returns when it expires; raises Refusal.
        limits: Timers.
        ended: Called once, when the listener can no longer receive offers.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        hybrid_connection: HybridConnection,
        listener_id: str,
        expires_at: float,
        renew: Callable[[str], float],
        limits: Limits,
        ended: Callable[[ControlChannel], None],
    ) -> None:
        self.hybrid_connection = hybrid_connection
        self.id = listener_id
        self.remote = connection.remote
        self._websocket = WebSocket(connection, self, limits)
        self._renew = renew
        self._limits = limits
        self._on_ended = ended
        self._is_ended = False
        self._loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        """Done when the listener has disconnected. A listener whose channel this relay has closed may still accept
        earlier offers."""
        self._requests: dict[str, PendingSender] = {}
        """HTTP requests that this listener received on this channel and has not answered, by id."""
        self._message: bytearray | None = None  # the message that is arriving
        self._message_opcode = TEXT
        self._response: Response | None = None  # its body is the next message
        self._expires_at = expires_at
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def start(self, early: bytes) -> None:
        """Start the timers, and process bytes that were received before the 101 response."""
        if self._limits.recycle_after is not None:
            self._timers["recycle"] = self._loop.call_later(self._limits.recycle_after, self.recycle)
        self._expire_or_wait()
        self._websocket.received(memoryview(early))

    @property
    def takes_bodies(self) -> bool:
        """True if the listener is keeping up, in which case a request may be sent with its body."""
        return self._websocket.connection.buffered < MAX_BODY_BACKLOG

    def offer(self, message: str, body: bytes = b"") -> bool:
        """Send an `accept` or `request` message and a body; return False if this listener cannot receive them."""
        # Offers are small, so it is enough to check the write buffer here, and pauses of writing are ignored.
        connection = self._websocket.connection
        if self._is_ended or not connection.is_open:
            return False
        if connection.buffered > MAX_BACKLOG:
            why = "it is not reading the offers sent to it"
            logger.info("disconnecting listener %s on '%s': %s", self.id, self.hybrid_connection.path, why)
            connection.abort()
            return False
        self._websocket.send_message(TEXT, message.encode())
        if body:  # nothing may come between message and body: the listener reads the next message as the body
            self._websocket.send_message(BINARY, body)
        return True

    def expect_response(self, pending: PendingSender) -> None:
        """Record that this listener was sent a request. No other listener may answer the request."""
        self._requests[pending.id] = pending

    def forget_request(self, pending: PendingSender) -> None:
        """Record that a request is no longer waiting for a response."""
        self._requests.pop(pending.id, None)

    def recycle(self) -> None:
        """Close the channel as Azure does once a day."""
        self.close(1011, RECYCLE_REASON)

    def close(self, code: int, reason: str) -> None:
        """Close the channel; relayed connections and pending offers continue."""
        self._websocket.send_close(close_payload(code, reason))
        self._end()

    # Events of the WebSocket:

    def chunks_received(self, websocket: WebSocket, chunks: list[Chunk]) -> None:  # noqa: ARG002 - there is one
        """Collect the fragments of messages; one that is too long closes the channel."""
        for opcode, payload, fin, _ in chunks:
            if opcode != CONTINUATION:
                # A body that nobody is waiting for is dropped as it arrives: its sender has disconnected, or never
                # existed.
                wanted = opcode == TEXT or self._response is not None
                self._message, self._message_opcode = bytearray() if wanted else None, opcode
            if self._message is None:
                continue
            self._message += payload
            # Checked with each fragment, because an endless message must not exhaust the memory.
            limit = MAX_CONTROL_BYTES if self._message_opcode == TEXT else MAX_CONTROL_BODY
            if len(self._message) > limit:
                self._message = None
                self.close(1009, f"a control message is longer than {limit} bytes")
                return
            if fin:
                message, self._message = bytes(self._message), None
                self._read_message(message)

    def close_received(self, websocket: WebSocket, payload: bytes) -> None:
        """Complete the closing handshake that the listener has started."""
        websocket.send_close(payload)
        self._has_left()
        websocket.connection.close()

    def lost(self, websocket: WebSocket) -> None:  # noqa: ARG002 - there is one
        """Remove the listener, because its connection is closed."""
        self._has_left()

    def _has_left(self) -> None:
        if not self._is_ended and not self.gone.done():
            self.gone.set_result(None)
        self._end()

    def _read_message(self, data: bytes) -> None:
        response, self._response = self._response, None
        if self._message_opcode == BINARY and response is not None:
            self._respond(response, data)
            return
        try:
            message = parse_listener_message(data.decode())
        except (ProtocolError, UnicodeDecodeError):
            self.close(1002, "a control message is not a JSON object with one key")
            return
        if isinstance(message, RenewToken) and not self._is_ended:
            self._replace_token(message.token)
        elif isinstance(message, Response) and message.has_body:
            self._response = message if message.request_id in self._requests else None
        elif isinstance(message, Response):
            self._respond(message, b"")

    def _respond(self, response: Response, body: bytes) -> None:
        """Pass on a response; a response that comes too late, or to another listener's request, is dropped."""
        pending = self._requests.pop(response.request_id, None)
        if pending is not None and not pending.outcome.done():
            pending.outcome.set_result(ControlResponse(response, body))

    def _replace_token(self, token: str) -> None:
        try:
            self._expires_at = self._renew(token)
        except Refusal as refusal:
            logger.info(
                "disconnecting listener %s on '%s': its new token was refused", self.id, self.hybrid_connection.path
            )
            self.close(1008, refusal.message)
            return
        self._expire_or_wait()

    def _expire_or_wait(self) -> None:
        """Close the channel if the token has expired, else check again later."""
        # At least once a minute, because timers stop while this machine sleeps and the wall clock does not.
        remaining = self._expires_at + self._limits.token_expiry_grace - time.time()
        if remaining <= 0:
            self.close(1008, "The token is expired")
            return
        if timer := self._timers.get("expiry"):
            timer.cancel()
        self._timers["expiry"] = self._loop.call_later(min(remaining, 60.0), self._expire_or_wait)

    def _end(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        if not self._is_ended:
            self._is_ended = True
            self._on_ended(self)
