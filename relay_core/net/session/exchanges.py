"""Small requests and responses as tunnel messages; a stream for each of them would cost more than their content.

A message is lost with its transport. The response acknowledges the request: the requester sends a request again on the
next transport until the response has arrived, and the responder executes each number once and keeps its last
responses.

A message is a number (u16), whose highest bit is set in a response, and a body of at most `MAX_BODY` bytes.

Why not a stream for each: a stream needs OPEN, DATA, FIN and its reset or end in both directions, and a place among the
peer's `max_streams`. Why not sequenced frames, which would be delivered exactly once: a sequenced frame waits for those
before it in a resume, and occupies the replay buffer until it is acknowledged, though its response acknowledges it
anyway.

What is ugly: "once" holds only as long as the number is remembered. After `KEPT` later requests, a repeated one would
be executed again; requests are sent again only after a resume, while all of them are still waiting for responses.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Callable

from relay_core.errors import ConnectionLost, ProtocolError
from relay_core.tunnel.limits import MAX_CONTROL_PAYLOAD

__all__ = ["MAX_BODY", "Exchanges", "Respond"]

_NUMBER = struct.Struct("!H")
_RESPONSE = 1 << 15
MAX_BODY = MAX_CONTROL_PAYLOAD - _NUMBER.size
"""Maximum number of bytes in a request or response."""
KEPT = 64
"""Maximum number of the peer's requests whose numbers are remembered. While this many are being executed, further
requests are ignored."""

Respond = Callable[[bytes], None]
"""Sends the response to a request; to be called once."""


class Exchanges:
    """The exchanges of one session, in both directions.

    Args:
        send: Sends a message, which may be lost.
        on_request: Called with each request from the peer and the function that responds to it; None to ignore
            requests.
    """

    def __init__(self, send: Callable[[bytes], None], on_request: Callable[[bytes, Respond], None] | None) -> None:
        self._send = send
        self._on_request = on_request
        self._numbers = itertools.count(1)
        self._pending: dict[int, tuple[bytes, asyncio.Future[bytes]]] = {}
        """By number, the requests from this side that have no response yet: each message, with the future for its
        response."""
        self._responses: dict[int, bytes | None] = {}
        """Responses to the peer's last requests, the oldest first; None while one is being executed."""
        self._error: ConnectionLost | None = None

    def __repr__(self) -> str:
        return f"<Exchanges pending={sorted(self._pending)} responses={len(self._responses)}>"

    async def request(self, body: bytes) -> bytes:
        """Send a request and return the response; safe to cancel.

        Raises:
            ProtocolError: the body is longer than `MAX_BODY`.
            ConnectionLost: the session is over.
        """
        if len(body) > MAX_BODY:
            raise ProtocolError("the request is too long")
        if self._error is not None:
            raise self._error
        number = next(self._numbers) % _RESPONSE
        message = _NUMBER.pack(number) + body
        response: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._pending[number] = message, response
        try:
            self._send(message)
            return await response
        finally:
            del self._pending[number]

    def received(self, message: bytes) -> None:
        """Handle a message from the peer."""
        if len(message) < _NUMBER.size:
            return
        number, body = _NUMBER.unpack_from(message)[0], message[_NUMBER.size :]
        if number & _RESPONSE:
            pending = self._pending.get(number ^ _RESPONSE)
            if pending is not None and not pending[1].done():
                pending[1].set_result(body)
        elif number in self._responses:
            if (response := self._responses[number]) is not None:
                self._send(response)
        elif self._on_request is not None and self._make_room():
            self._responses[number] = None
            self._on_request(body, lambda response: self._respond(number, response))

    def transport_attached(self) -> None:
        """Send the unanswered requests again, because the last transport may have lost them."""
        for message, _ in self._pending.values():
            self._send(message)

    def break_off(self, error: ConnectionLost) -> None:
        """Fail the unanswered requests, and all later ones, because the session is over."""
        self._error = error
        for _, response in self._pending.values():
            if not response.done():
                response.set_exception(error)

    def _respond(self, number: int, body: bytes) -> None:
        if number in self._responses:
            message = self._responses[number] = _NUMBER.pack(number | _RESPONSE) + body
            self._send(message)

    def _make_room(self) -> bool:
        """Forget the oldest response if there are `KEPT`; return False if all `KEPT` requests are being executed."""
        if len(self._responses) < KEPT:
            return True
        oldest = next((number for number, response in self._responses.items() if response is not None), None)
        if oldest is None:
            return False
        del self._responses[oldest]
        return True
