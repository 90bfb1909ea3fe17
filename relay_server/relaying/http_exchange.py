"""Relaying one HTTP request to a listener and its response to the sender.

A request whose body is known to fit into a control message is sent on the control channel; for any other request, the
listener is sent only an address, connects to it, and receives the request there. In both cases, the listener may
respond at the address, where a body can have any length; a listener that received the request on its control channel
may also respond on that channel. Each address is used for one request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ProtocolError
from relay_core.hyco.http import MAX_CONTROL_BODY, Response, forwardable, has_no_body
from relay_core.hyco.messages import parse_listener_message
from relay_core.net.tasks import TaskSet
from relay_core.ws.frames import BINARY, CONTINUATION, MAX_PAYLOAD, Chunk
from relay_server.config.model import Limits
from relay_server.connection.request_reader import HttpSender
from relay_server.protocol.http import CONTINUE, response_head
from relay_server.protocol.refusals import Refusal, bad_response, body_timed_out, response_timed_out
from relay_server.protocol.requests import HttpRequest
from relay_server.relaying.rendezvous import HttpRendezvous

T = TypeVar("T")

logger = logging.getLogger(__name__)


class HttpExchange:
    """One request and its response.

    Args:
        request: The request.
        sender: The sender's connection.
        host: The namespace, for the Via header.
        limits: Timers.
    """

    def __init__(self, request: HttpRequest, sender: HttpSender, *, host: str, limits: Limits) -> None:
        self.bytes_to_listener = 0
        self.bytes_to_sender = 0
        self.responded = False
        """True when the head of the response has been sent, so that no error response can follow."""
        self.keeps_alive = False
        """True when the response has announced that the sender may use its connection for another request."""
        self._small_body: bytes | None = None
        self._request = request
        self._sender = sender
        self._host = host
        self._timeout = limits.http_timeout

    async def small_body(self) -> bytes | None:
        """Return the body if it fits into a control message, else None.

        Raises:
            Refusal: The body is malformed or does not arrive.
        """
        head = self._request.head
        if "100-continue" in (head.header("Expect") or "").lower():
            await self._sender.write(CONTINUE)
        if head.content_length is None or head.content_length > MAX_CONTROL_BODY:
            return None
        body = bytearray()
        while part := await self._body_part():
            body += part
        self._small_body = bytes(body)
        return self._small_body

    async def respond(self, response: Response, body: bytes) -> None:
        """Forward a response that was sent on the control channel.

        Raises:
            Refusal: The response is invalid.
        """

        async def pieces() -> AsyncIterator[bytes]:
            yield body

        await self._respond(response, pieces(), length=len(body))

    async def relay(self, listener: HttpRendezvous, message: Callable[[bool], str] | None) -> None:
        """Exchange request and response over a rendezvous.

        Args:
            listener: The listener's connection.
            message: Returns the full `request` message, given whether a body follows; None if the listener has
                received it on its control channel.

        Raises:
            Refusal: The listener or the sender does not send what is expected, or does not send it in time.
        """
        try:
            async with TaskSet() as tasks:
                upload = None if message is None else tasks.spawn(self._upload(listener, message), name="upload")
                response = await self._response_of(listener, upload)
                await self._respond(response, self._body_of(listener, response), length=None)
        except BaseException:
            listener.abort()  # even if the sender has disconnected, which the listener would not notice otherwise
            raise
        listener.close()

    async def _upload(self, listener: HttpRendezvous, message: Callable[[bool], str]) -> Refusal | None:
        """Send the request and its body as one binary message; return the error that ended it."""
        try:
            part = await self._body_part()
            # Some official clients interpret an empty binary message as the end of the stream.
            await self._in_time(listener.send_text(message(bool(part))))
            opcode = BINARY
            while part:
                self.bytes_to_listener += len(part)
                for start in range(0, len(part), MAX_PAYLOAD):
                    await self._in_time(listener.send(Chunk(opcode, part[start : start + MAX_PAYLOAD], fin=False)))
                    opcode = CONTINUATION
                part = await self._body_part()
            if opcode == CONTINUATION:
                await self._in_time(listener.send(Chunk(CONTINUATION, b"", fin=True)))
        except Refusal as refusal:
            return refusal
        return None

    async def _response_of(self, listener: HttpRendezvous, upload: asyncio.Task[Refusal | None] | None) -> Response:
        """Read the response message, which may arrive before the request body has been sent."""
        async with TaskSet() as tasks:
            arriving = tasks.spawn(self._read_response(listener), name="response")
            if upload is not None:
                await asyncio.wait({arriving, upload}, return_when=asyncio.FIRST_COMPLETED)
                if not arriving.done() and (refusal := upload.result()) is not None:
                    raise refusal
            await asyncio.wait({arriving}, timeout=self._timeout)
            if not arriving.done():
                raise response_timed_out()
            response: Response | None = arriving.result()
        if response is None:
            raise bad_response()
        return response

    async def _read_response(self, listener: HttpRendezvous) -> Response | None:
        """Return the response; None if the listener sent something else, or disconnected."""
        try:
            message = parse_listener_message(await listener.read_text())
        except (ProtocolError, Refusal):
            return None
        return message if isinstance(message, Response) else None

    async def _body_of(self, listener: HttpRendezvous, response: Response) -> AsyncIterator[bytes]:
        # A Close frame in the middle of the message ends the body, too: Microsoft's Java client ends long messages in
        # this way.
        ended = not response.has_body
        while not ended and (chunk := await self._in_time(listener.read())) is not None:
            ended = chunk.fin
            yield chunk.payload

    async def _respond(self, response: Response, body: AsyncIterator[bytes], *, length: int | None) -> None:
        try:
            response.check()
        except ProtocolError as error:
            logger.info("a listener sent an invalid response: %s", error.sentence)
            raise bad_response() from None
        head = self._request.head
        bodiless = has_no_body(head.method, response.status)
        if not response.has_body:
            length = 0
        chunked = length is None and not bodiless and head.http_version == "1.1"
        # Decided here: a body that is still arriving may be complete later, but the response announces that the
        # connection closes.
        self.keeps_alive = self._sender.body_read and head.keeps_alive
        headers = self._headers(response, bodiless=bodiless, length=length, chunked=chunked)
        headers.append(("Connection", "keep-alive" if self.keeps_alive else "close"))
        self.responded = True
        await self._in_time(self._sender.write(response_head(response.status, response.reason, headers)))
        async for piece in body:
            if piece and not bodiless:
                self.bytes_to_sender += len(piece)
                framed = b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece
                await self._in_time(self._sender.write(framed))
        if chunked:
            await self._in_time(self._sender.write(b"0\r\n\r\n"))

    def _headers(
        self, response: Response, *, bodiless: bool, length: int | None, chunked: bool
    ) -> list[tuple[str, str]]:
        """Return the head's fields: the listener's, and those that describe the body on this connection."""
        given = {name.lower(): value for name, value in response.headers.items()}
        headers = list(forwardable(response.headers, without={"via"}).items())
        via = f"1.1 {self._host}"
        headers.append(("Via", f"{given['via']}, {via}" if given.get("via") else via))
        if bodiless:
            # The length that a GET would have; it has no effect on where this response ends.
            declared = given.get("content-length", "")
            is_valid = response.status != 204 and declared.isascii() and declared.isdigit()
            return [*headers, ("Content-Length", declared)] if is_valid else headers
        if response.has_body and "content-type" not in given:
            headers.append(("Content-Type", "application/octet-stream"))  # required by Microsoft's Java client
        if chunked:
            return [*headers, ("Transfer-Encoding", "chunked")]
        return headers if length is None else [*headers, ("Content-Length", str(length))]

    async def _body_part(self) -> bytes:
        """Return a part of the sender's body, which is b"" only at its end."""
        if self._small_body is not None:  # it was read before, and the listener could not get it with the request
            part, self._small_body = self._small_body, b""
            return part
        try:
            async with timeout(self._timeout):
                return await self._sender.read()
        except TIMEOUT_ERRORS:
            raise body_timed_out() from None

    async def _in_time(self, step: Awaitable[T]) -> T:
        """Wait for a peer that must send or receive the next part."""
        try:
            async with timeout(self._timeout):
                return await step
        except TIMEOUT_ERRORS:
            raise response_timed_out() from None
