"""A listener's control channel: offers out, `renewToken` in, and the ways it ends.

1001  the relay shuts down                    1008  the token expired, or its successor was refused
1002  the listener broke the protocol         1009  it sent a message that is too long
1011  recycled, as Azure does every 24 hours
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from relay_core.errors import ProtocolError
from relay_core.hyco.messages import MAX_CONTROL_BYTES, parse_renew_token
from relay_core.ws.frames import CONTINUATION, TEXT, Chunk, close_payload
from relay_server.access.rules import Grant
from relay_server.config.model import HybridConnection, Limits
from relay_server.connection.tcp import Connection
from relay_server.connection.websocket import WebSocket
from relay_server.protocol.refusals import Refusal

__all__ = ["ControlChannel"]

logger = logging.getLogger(__name__)

MAX_BACKLOG = 1024 * 1024
"""Bytes of offers a listener may leave unread; beyond that it is as good as dead."""
RECYCLE_REASON = "InternalServerError: NameRenewalFailed"
"""What Azure says when it recycles a listener."""


class ControlChannel:
    """One connected listener.

    Args:
        connection: Answered with 101 already.
        hybrid_connection: What it listens on.
        listener_id: The GUID that senders may ask for.
        grant: What its token allowed.
        renew: Checks a new token; raises Refusal.
        limits: Times.
        ended: Called once, as soon as no more offers can be made.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        hybrid_connection: HybridConnection,
        listener_id: str,
        grant: Grant,
        renew: Callable[[str], Grant],
        limits: Limits,
        ended: Callable[[ControlChannel], None],
    ) -> None:
        self.hybrid_connection = hybrid_connection
        self.id = listener_id
        self._websocket = WebSocket(
            connection, self, ping_interval=limits.ping_interval, ping_timeout=limits.ping_timeout
        )
        self._renew = renew
        self._limits = limits
        self._on_ended = ended
        self._is_ended = False
        self._loop = asyncio.get_running_loop()
        self._message: bytearray | None = None  # the text message that is arriving
        self._expires_at = grant.expires_at
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def __repr__(self) -> str:
        return f"<ControlChannel {self.hybrid_connection.path} {self.id} {'ended' if self._is_ended else 'open'}>"

    def start(self, early: bytes) -> None:
        """Begin to watch the clock, and take what came before the channel was open."""
        if self._limits.recycle_after is not None:
            self._timers["recycle"] = self._loop.call_later(self._limits.recycle_after, self.recycle)
        self._expire_or_wait()
        if early:
            self._websocket.received(memoryview(early))

    def offer(self, message: str) -> bool:
        """Send an `accept` message; False if this listener cannot take it."""
        connection = self._websocket.connection
        if self._is_ended or not connection.is_open:
            return False
        if connection.buffered > MAX_BACKLOG:
            logger.info("listener %s on '%s' does not read its offers: dropped", self.id, self.hybrid_connection.path)
            connection.abort()
            return False
        self._websocket.send_message(TEXT, message.encode())
        return True

    def recycle(self) -> None:
        """Do what Azure does to each listener once a day."""
        self.close(1011, RECYCLE_REASON)

    def close(self, code: int, reason: str) -> None:
        """End the channel with a reason; rendezvous under way are not touched."""
        self._websocket.send_close(close_payload(code, reason))
        self._end()
        if "close" not in self._timers:
            self._timers["close"] = self._loop.call_later(self._limits.close_timeout, self._websocket.connection.abort)

    # What the websocket reports:

    def chunks_received(self, websocket: WebSocket, chunks: list[Chunk]) -> None:  # noqa: ARG002 - there is one
        """Collect text messages; binary ones are bodies of HTTP answers, which nobody waits for."""
        for opcode, payload, fin, _ in chunks:
            if opcode != CONTINUATION:
                self._message = bytearray() if opcode == TEXT else None
            if self._message is None:
                continue
            self._message += payload
            if len(self._message) > MAX_CONTROL_BYTES:
                self._message = None
                self.close(1009, f"a control message is longer than {MAX_CONTROL_BYTES} bytes")
                return
            if fin:
                text, self._message = bytes(self._message), None
                self._read_message(text)

    def close_received(self, websocket: WebSocket, payload: bytes) -> None:
        """The listener leaves."""
        websocket.send_close(payload)
        self._end()
        websocket.connection.close()

    def writing_paused(self, websocket: WebSocket) -> None:
        """Nothing to do: offers are small, and `offer` looks at the backlog."""

    def writing_resumed(self, websocket: WebSocket) -> None:
        """Nothing to do."""

    def lost(self, websocket: WebSocket) -> None:  # noqa: ARG002 - there is one
        """The listener is gone."""
        self._end()
        if timer := self._timers.pop("close", None):
            timer.cancel()

    def _read_message(self, data: bytes) -> None:
        try:
            token = parse_renew_token(data.decode())
        except (ProtocolError, UnicodeDecodeError):
            self.close(1002, "a control message is no JSON object with one key")
            return
        if token is None or self._is_ended:
            return
        try:
            self._expires_at = self._renew(token).expires_at
        except Refusal as refusal:
            logger.info("listener %s on '%s' sent a bad token", self.id, self.hybrid_connection.path)
            self.close(1008, refusal.message)
            return
        self._expire_or_wait()

    def _expire_or_wait(self) -> None:
        """Close when the token has expired by the wall clock, which may run on while this machine sleeps."""
        remaining = self._expires_at + self._limits.token_expiry_grace - time.time()
        if remaining <= 0:
            self.close(1008, "The token is expired")
            return
        if timer := self._timers.get("expiry"):
            timer.cancel()
        self._timers["expiry"] = self._loop.call_later(min(remaining, 60.0), self._expire_or_wait)

    def _end(self) -> None:
        for name in ("expiry", "recycle"):
            if timer := self._timers.pop(name, None):
                timer.cancel()
        if not self._is_ended:
            self._is_ended = True
            self._on_ended(self)
