"""HTTP for the services of this folder: a request, a reply, a table of routes, and the body of an error."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from aiohttp import web

from tests.support.azure.cloud.state import Refusal


@dataclass(frozen=True)
class Request:
    """One request, its path decoded and its body parsed where it is JSON or a form."""

    method: str
    host: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    """By name in lower case."""
    body: bytes = field(repr=False)

    @property
    def json(self) -> Any:
        return json.loads(self.body or b"{}")

    @property
    def form(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(self.body.decode()).items()}

    @property
    def token(self) -> str:
        return self.headers.get("authorization", "").partition("Bearer ")[2]


@dataclass(frozen=True)
class Reply:
    """A status and what is sent as JSON; None sends nothing."""

    status: int
    content: Any = None
    headers: dict[str, str] = field(default_factory=dict)


def refused(refusal: Refusal) -> Reply:
    """Return an error as Azure's services write it."""
    error: dict[str, Any] = {"code": refusal.code, "message": refusal.message}
    if refusal.inner:
        error["innererror"] = {"code": refusal.inner}
    return Reply(refusal.status, {"error": error})


def application(answer: Callable[[Request], Awaitable[Reply]]) -> web.Application:
    """Return a server of this function, for any method and path."""

    async def serve(asked: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in asked.headers.items()}
        host = asked.host.partition(":")[0].lower()
        reply = await answer(Request(asked.method, host, asked.path, dict(asked.query), headers, await asked.read()))
        content = b"" if reply.content is None else json.dumps(reply.content).encode()
        kind = {"Content-Type": "application/json; charset=utf-8"}
        return web.Response(body=content, status=reply.status, headers={**kind, **reply.headers})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", serve)
    return app


Handler = Callable[..., Reply]


class Routes:
    """Handlers by method and path; `{name}` in a path matches one segment, and paths are compared without case."""

    def __init__(self) -> None:
        self._known: list[tuple[str, re.Pattern[str], Handler]] = []

    def __call__(self, method: str, path: str) -> Callable[[Handler], Handler]:
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path).replace("{*", "(?P<").replace("*}", ">.*?)")

        def add(handler: Handler) -> Handler:
            self._known.append((method, re.compile(pattern, re.IGNORECASE), handler))
            return handler

        return add

    def answer(self, service: Any, request: Request) -> Reply | None:
        """Call the first handler that fits as `handler(service, request, **parts of the path)`; None if none does."""
        for method, pattern, handler in self._known:
            if method == request.method and (match := pattern.fullmatch(request.path)):
                try:
                    return handler(service, request, **match.groupdict())
                except Refusal as refusal:
                    return refused(refusal)
        return None
