"""HTTP over a hybrid connection: requests that a listener receives and serves, and the sender's side."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from relay_core.errors import ConnectionLost, ProtocolError, RelayDebugError
from relay_core.hyco.address import TOKEN_HEADER, Endpoint
from relay_core.hyco.http import MAX_CONTROL_BODY, Request, Response, find_header, forwardable, has_no_body
from relay_core.hyco.messages import MAX_CONTROL_BYTES, parse_server_message
from relay_core.hyco.sas import Credential
from relay_core.net.tasks import TaskSet, frames_of
from relay_core.net.websocket.connection import WebSocket
from relay_core.net.websocket.handshake import open_websocket
from relay_core.net.websocket.opening_errors import HandshakeRefused

logger = logging.getLogger(__name__)


MAX_BODY = 1024 * 1024
"""Default maximum size in bytes of a body that `read` returns."""


class HttpRequest:
    """An HTTP request that a relay has forwarded.

    Iteration yields the parts of the body as they arrive; `read` returns all of it. A body can be read once.
    """

    def __init__(self, message: Request, body: AsyncIterator[bytes]) -> None:
        self.id = message.id
        """The relay's tracking id, `GUID_Gn`."""
        self.method = message.method or ""
        self.target = message.target
        """Path and query; the path begins with the hybrid connection's name and is already decoded."""
        self.path, _, self.query = message.target.partition("?")
        """The path begins with `/` and must not be decoded again. The query does not contain the relay's own
        parameters, and is still percent-encoded."""
        self.headers = message.headers
        """The sender's headers without the relay's token. They may contain cookies and must not be logged."""
        self.remote_endpoint = message.remote_endpoint
        """The sender's network address as seen by the relay."""
        self._body = body

    def header(self, name: str) -> str | None:
        """Return the header `name` (case-insensitive), or None."""
        return find_header(self.headers, name)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._body

    async def read(self, *, limit: int = MAX_BODY) -> bytes:
        """Return the body.

        Raises:
            ProtocolError: The body is longer than `limit` bytes.
            ConnectionLost: The sender or the relay has disconnected.
        """
        body = bytearray()
        async for part in self:
            body += part
            if len(body) > limit:
                raise ProtocolError(f"an HTTP request body is longer than {limit} bytes")
        return bytes(body)


@dataclass(frozen=True)
class HttpResponse:
    """The response to an HTTP request.

    >>> HttpResponse(404, b"no such page", headers={"Content-Type": "text/plain"}).status
    404
    """

    status: int = 200
    """From 200 to 999."""
    body: bytes | AsyncIterable[bytes] = field(default=b"", repr=False)
    """Bytes, or an asynchronous iterable of bytes that is sent as it is produced."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Names and values. Those that describe the connection or the length of the body are set by the relay."""
    reason: str = ""
    """The reason phrase."""


HttpHandler: TypeAlias = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""Answers a request. An exception becomes a response with status 500."""


# Serves the HTTP requests that a listener receives.
#
# A request arrives on the control channel, or over a connection that this module opens to an address. The response is
# returned in the same way, unless the request arrived on the control channel and the response is streamed or too long
# for a control message: then this module connects to the request's address and sends the response there.

MAX_REQUESTS = 256
"""Maximum number of requests that are served at the same time; further ones are answered with 503."""


class HttpService:
    """Passes requests to a handler and sends its responses.

    Args:
        handler: Answers requests; None if the listener serves none.
        tls: TLS context for connections to the addresses of requests.
    """

    def __init__(self, handler: HttpHandler | None, *, tls: ssl.SSLContext) -> None:
        self._handler = handler
        self._tls = tls
        self._tasks = TaskSet()
        """One for each request that is being served."""

    def serve(self, message: Request, body: bytes, control: WebSocket) -> None:
        """Start a task that answers a request from a control channel."""
        busy = len(self._tasks) >= MAX_REQUESTS
        if message.method is None and (busy or self._handler is None):
            return  # the relay answers the sender after its time limit; connecting only to refuse would cost more
        handler = _busy if busy else self._handler or _not_served
        self._tasks.spawn(self._serve(message, body, control, handler), name=f"HTTP request {message.id}")

    async def close(self) -> None:
        """Abandon the requests that are being served."""
        await self._tasks.cancel_all()

    async def _serve(self, message: Request, body: bytes, control: WebSocket, handler: HttpHandler) -> None:
        try:
            if message.method is None:
                await self._serve_at_address(message, handler)
            else:
                await self._serve_on_control(message, body, control, handler)
        except HandshakeRefused as refusal:
            logger.info("an HTTP request ended before its response was sent (%d)", refusal.status)
        except RelayDebugError as error:
            logger.info("an HTTP request failed: %s", error.sentence)

    async def _serve_on_control(self, message: Request, body: bytes, control: WebSocket, handler: HttpHandler) -> None:
        async def parts() -> AsyncIterator[bytes]:
            if body:
                yield body

        response = await _handle(handler, HttpRequest(message, parts()))
        text, content = _encode(message, response)
        if isinstance(content, bytes) and len(content) <= MAX_CONTROL_BODY and len(text) <= MAX_CONTROL_BYTES:
            try:
                await control.send(text, *([content] if content else []))
            except ConnectionLost:
                logger.debug("the control channel was lost; sending the response to the request's address")
            else:
                return
        websocket = await open_websocket(message.address, tls=self._tls)
        await self._respond(websocket, message, response)

    async def _serve_at_address(self, message: Request, handler: HttpHandler) -> None:
        if not message.address:
            raise ProtocolError("a request message has neither a method nor an address")
        websocket = await open_websocket(message.address, tls=self._tls)
        try:
            text = await websocket.receive(limit=MAX_CONTROL_BYTES)
            request = parse_server_message(text) if isinstance(text, str) else None
            if not isinstance(request, Request) or request.method is None:
                raise ProtocolError("the relay specified an address for a request, but did not send the request there")
            parts = _parts(websocket, has_body=request.has_body)
            response = await _handle(handler, HttpRequest(request, parts))
        except BaseException:
            websocket.abort()
            raise
        await self._respond(websocket, request, response)

    async def _respond(self, websocket: WebSocket, request: Request, response: HttpResponse) -> None:
        """Send a response at the request's address."""
        try:
            text, content = _encode(request, response)
            await websocket.send(text)
            if isinstance(content, bytes):
                if content:
                    await websocket.send(content)
            else:
                first = True
                async for part in content:
                    if part:
                        await websocket.send_part(part, first=first, last=False)
                        first = False
                await websocket.send_part(b"", first=first, last=True)
        except BaseException:
            websocket.abort()  # the relay then drops the sender's connection, which shows that the body is incomplete
            raise
        await websocket.close()


async def _not_served(_request: HttpRequest) -> HttpResponse:
    return HttpResponse(501, reason="this listener does not serve HTTP requests")


async def _busy(_request: HttpRequest) -> HttpResponse:
    return HttpResponse(503, reason="this listener is already serving too many HTTP requests")


async def _handle(handler: HttpHandler, request: HttpRequest) -> HttpResponse:
    """Return the handler's response, or one with status 500."""
    try:
        response = await handler(request)
        Response(request.id, response.status, headers=response.headers).check()
    except ConnectionLost:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the application raises concerns this request only
        # Only the type and place: the text may contain parts of the request.
        logger.error("the HTTP request handler failed: %s", frames_of(error))
        return HttpResponse(500, reason="Internal Server Error")
    return response


async def _parts(websocket: WebSocket, *, has_body: bool) -> AsyncIterator[bytes]:
    """Yield the parts of a body, which is one message."""
    last = not has_body
    while not last:
        part, last = await websocket.receive_part()
        if part:
            yield part


def _encode(request: Request, response: HttpResponse) -> tuple[str, bytes | AsyncIterable[bytes]]:
    """Return the response message, and the body, which is b"" if there is none."""
    headers, body = forwardable(response.headers), response.body
    if request.method == "HEAD" and isinstance(body, bytes) and body:
        headers["Content-Length"] = str(len(body))
    if has_no_body(request.method or "", response.status):
        body = b""
    return Response(request.id, response.status, response.reason, headers, has_body=body != b"").encode(), body


# The sender's side of HTTP over a hybrid connection: any HTTP client with the relay's token in a header.


async def http_headers(endpoint: Endpoint, credential: Credential) -> dict[str, str]:
    """Return the header that authorizes an HTTP request to `endpoint.http_url()`; empty if the token is empty.

    Args:
        endpoint: The hybrid connection.
        credential: A credential with the Send right.

    Raises:
        RelayDebugError: The credential has no token.
    """
    # Requested before each request, because a credential caches its token and renews it before it expires.
    token = await credential.token(endpoint)
    return {TOKEN_HEADER: token.value} if token.value else {}
