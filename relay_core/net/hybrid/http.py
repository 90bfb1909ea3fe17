"""HTTP requests that a listener receives, and its responses."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from relay_core.errors import ProtocolError
from relay_core.hyco.http.messages import Request
from relay_core.hyco.remote_endpoint import RemoteEndpoint

__all__ = ["HttpHandler", "HttpRequest", "HttpResponse"]

MAX_BODY = 1024 * 1024
"""Default maximum size in bytes of a body that `read` returns."""


class HttpRequest:
    """An HTTP request that a relay has forwarded.

    Iteration yields the parts of the body as they arrive; `read` returns all of it. A body can be read once.
    """

    def __init__(self, message: Request, body: AsyncIterator[bytes]) -> None:
        self._message = message
        self._body = body

    def __repr__(self) -> str:
        return f"<HttpRequest {self.id} {self.method}>"  # target and headers may contain secrets

    @property
    def id(self) -> str:
        """The relay's tracking id, `GUID_Gn`."""
        return self._message.id

    @property
    def method(self) -> str:
        """`GET`, `POST` or any other method."""
        return self._message.method or ""

    @property
    def target(self) -> str:
        """Path and query; the path begins with the hybrid connection's name and is already decoded."""
        return self._message.target

    @property
    def path(self) -> str:
        """The decoded path, which begins with `/` and the hybrid connection's name; not to be decoded again."""
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        """The query without the relay's own parameters, still percent-encoded."""
        return self.target.partition("?")[2]

    @property
    def headers(self) -> Mapping[str, str]:
        """The sender's headers without the relay's token. They may contain cookies and must not be logged."""
        return self._message.headers

    @property
    def remote_endpoint(self) -> RemoteEndpoint | None:
        """The sender's network address as seen by the relay."""
        return self._message.remote_endpoint

    def header(self, name: str) -> str | None:
        """Return the header `name` (case-insensitive), or None."""
        wanted = name.lower()
        return next((value for key, value in self.headers.items() if key.lower() == wanted), None)

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
