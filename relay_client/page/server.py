"""The page's HTTP server on 127.0.0.1: static files for everybody, data for this user's browser tabs with a session.

GET  /, /page.css, /*.js    the page, which contains no data
POST /session               token in the link -> key
GET  /updates               state and events (`Feed.updates`) as server-sent events
GET  /stacks, /hang         results of these requests, as on the control socket
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Awaitable, Callable
from importlib import resources

from aiohttp import web

from relay_client.control.codec import encode
from relay_client.control.messages import Hang, Request, Stacks
from relay_client.control.service import ControlService, Subscriber
from relay_client.page.access import PageAccess
from relay_client.page.feed import Feed
from relay_core.errors import LocalPortInUse, RelayDebugError
from relay_core.net.tasks import TaskSet
from relay_core.socket_tables import ROOT, OwnerUnknown, SocketTables, own_user

__all__ = ["PageServer"]

HOST = "127.0.0.1"
FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/connection.js": ("connection.js", "text/javascript"),
    "/resources.js": ("resources.js", "text/javascript"),
    "/timeline.js": ("timeline.js", "text/javascript"),
    "/elements.js": ("elements.js", "text/javascript"),
}
HEADERS = {
    # No inline script or style, and nothing from other hosts: text from a job can never become code.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
MAX_BODY = 1024
"""Maximum number of bytes in a request."""
CLOSE_TIMEOUT = 0.2
"""Seconds that the connections of open pages have to close when relay-client exits."""
FOREIGN_HOST = "this server accepts only the address 127.0.0.1; hint: use the link that relay-client printed"
OTHER_USER = "this page belongs to another user of this machine"
NO_SESSION = (
    "this link has already been used or belongs to another relay-client; hint: use the last link that relay-client "
    "printed"
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PageServer:
    """Serves the page during an `async with` block.

    Args:
        service: Answers the requests.
        show_link: Called with each new link; the link must not reach a log.
        port: The local port; 0 for a free one.
    """

    def __init__(self, service: ControlService, show_link: Callable[[str], None], port: int = 0) -> None:
        self._service = service
        self._show_link = show_link
        self._port = port
        self._feed = Feed(service)
        self._subscriber = Subscriber(lambda _event: None)
        self._tables = SocketTables()
        self._access = PageAccess(port, _secret)
        self._stack = contextlib.AsyncExitStack()

    def __repr__(self) -> str:
        return f"<PageServer {self._access}>"

    async def __aenter__(self) -> PageServer:
        runner = web.AppRunner(self._application(), access_log=None, shutdown_timeout=CLOSE_TIMEOUT)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._feed)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            try:
                await web.TCPSite(runner, HOST, self._port).start()
            except OSError as error:
                raise LocalPortInUse(
                    f"cannot listen on port {self._port}: {error.strerror}",
                    hint="choose another port, or use --ui without a port",
                ) from None
            self._port = runner.addresses[0][1]
            self._access = PageAccess(self._port, _secret)
            self._stack = stack.pop_all()
        self._show_link(self._access.link)
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self._stack.aclose()

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._check], client_max_size=MAX_BODY)
        for path in FILES:
            application.router.add_get(path, _file)
        application.router.add_post("/session", self._open_session)
        application.router.add_get("/updates", self._updates)
        application.router.add_get("/stacks", self._stacks)
        application.router.add_get("/hang", self._hang)
        return application

    @web.middleware
    async def _check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse foreign hosts, users and sessions before the request is handled."""
        if not self._access.is_own_host(request.headers.get("Host")):
            return _refusal(FOREIGN_HOST)
        if not self._is_own_user(request):
            return _refusal(OTHER_USER)
        if request.path not in FILES and request.path != "/session" and not self._has_session(request):
            return _refusal(NO_SESSION)
        try:
            response = await handler(request)
        except web.HTTPException as error:
            error.headers.update(HEADERS)
            raise
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    def _has_session(self, request: web.Request) -> bool:
        kind, _, key = request.headers.get("Authorization", "").partition(" ")
        return kind == "Bearer" and self._access.is_valid(key)

    def _is_own_user(self, request: web.Request) -> bool:
        """Return True if a process of this user or root sent the request, or if the system does not show the sender."""
        transport = request.transport
        if transport is None:  # the connection is closed
            return False
        try:
            owner = self._tables.peer_owner(
                transport.get_extra_info("sockname")[:2], transport.get_extra_info("peername")[:2]
            )
        except OwnerUnknown:
            return True
        except OSError:
            return False
        return owner in {own_user(), ROOT}

    async def _open_session(self, request: web.Request) -> web.Response:
        key = self._access.open_session(await request.text())
        if key is None:
            return _refusal(NO_SESSION)
        self._show_link(self._access.link)
        return web.json_response({"key": key})

    async def _updates(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        async with TaskSet() as tasks, contextlib.aclosing(self._feed.updates()) as updates:
            tasks.spawn(self._service.look_for_agents(), name="look for agents for a page")
            with contextlib.suppress(ConnectionError):  # the tab was closed
                async for update in updates:
                    await response.write(f"data: {json.dumps(update, separators=(',', ':'))}\n\n".encode())
        return response

    async def _stacks(self, _request: web.Request) -> web.Response:
        return await self._answer(Stacks())

    async def _hang(self, _request: web.Request) -> web.Response:
        return await self._answer(Hang())

    async def _answer(self, request: Request) -> web.Response:
        try:
            return web.json_response(encode(await self._service.answer(request, self._subscriber)))
        except RelayDebugError as error:
            return web.json_response({"error": {"sentence": error.sentence, "hint": error.hint}})


async def _file(request: web.Request) -> web.Response:
    name, kind = FILES[request.path]
    content = (resources.files(__package__) / "assets" / name).read_bytes()
    return web.Response(body=content, content_type=kind, charset="utf-8")


def _refusal(sentence: str) -> web.Response:
    return web.Response(status=403, text=f"{sentence}\n", headers=HEADERS)


def _secret() -> str:
    return secrets.token_urlsafe(32)
