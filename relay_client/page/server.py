"""The page's HTTP server on 127.0.0.1: static files for everybody, data for this user's browser tabs with a session.

    GET  /, /page.css, /*.js    the page, which contains no data
    POST /session               token in the link -> key
    GET  /updates               state and events (`Feed.updates`) as server-sent events
    GET  /stacks, /hang         results of these requests, as on the control socket
    GET  /values, /differences  the value of a path in ranks, which is read without executing the job's code

Connections of other users are closed before a request is read. Connections without a request are closed too, and their
number is limited, so that nobody can use up relay-client's file descriptors.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from importlib import resources
from typing import cast

from aiohttp import web

from relay_client.compare.paths import as_plain_read
from relay_client.control.messages import GetStatus, Subscribe
from relay_client.control.service import ControlService, Subscriber
from relay_client.page.access import PageAccess
from relay_client.ranks.changes import Event
from relay_client.ranks.record import encode
from relay_client.verbs.console import with_hint
from relay_client.verbs.hang import Hang
from relay_client.verbs.stacks import Stacks
from relay_client.verbs.values import Diff, Evaluate
from relay_client.verbs.verb import Answer, Verb
from relay_core.errors import LocalPortInUse, RelayDebugError
from relay_core.net.loopback import PeerCheck
from relay_core.net.streams.local_server import LocalServer
from relay_core.net.tasks import TaskSet, first_completed
from relay_core.socket_tables import LOOPBACK, ROOT, own_user

logger = logging.getLogger(__name__)


# What the page shows: the state of relay-client, and the events since it started.

MAX_EVENTS = 1000
"""Maximum number of events kept for a page that is opened later; crashes are kept longest."""
MIN_INTERVAL = 1.0
"""Minimum number of seconds between two updates of a page; changes in between are combined, because a job with 256
ranks has many changes."""
MAX_INTERVAL = 5.0
"""Maximum number of seconds between two updates of a page, because round trips change without an event."""


class Feed:
    """Collects events during an `async with` block, and produces updates for any number of pages.

    Args:
        service: Answers the requests of other programs in this relay-client.
    """

    def __init__(self, service: ControlService) -> None:
        self._service = service
        self._subscriber = Subscriber(self._receive)
        self._events: dict[int, Event] = {}
        """The kept events, oldest first, by their number."""
        self._count = 0
        """Number of events since relay-client started."""
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Feed:
        self._service.subscribers.add(self._subscriber)
        await self._service.answer(Subscribe(), self._subscriber)
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        self._service.subscribers.discard(self._subscriber)

    async def updates(self) -> AsyncGenerator[dict[str, object], None]:
        """Yield the state and the kept events, then, indefinitely, the state and the new events after each change.

        Each update has `state` and `events`, encoded as on the control socket.
        """
        seen = 0
        while True:
            changed = self._changed
            new = [event for number, event in self._events.items() if number > seen]
            seen = self._count
            state = await self._service.answer(GetStatus(), self._subscriber)
            yield {"state": encode(state), "events": [encode(event) for event in new]}
            await asyncio.sleep(MIN_INTERVAL)
            await first_completed(changed.wait(), timeout=MAX_INTERVAL - MIN_INTERVAL)

    def _receive(self, event: Event) -> None:
        self._count += 1
        self._events[self._count] = event
        if len(self._events) > MAX_EVENTS:
            others = (number for number, kept in self._events.items() if not _is_crash(kept))
            del self._events[next(others, next(iter(self._events)))]
        self._changed.set()
        self._changed = asyncio.Event()


def _is_crash(event: Event) -> bool:
    return event.state == "crashed" or (event.event == "stopped" and bool(event.detail))


SCRIPTS = ("page", "connection", "elements", "events", "inspect", "map", "rank", "resources", "timeline", "view")
FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    **{f"/{name}.js": (f"{name}.js", "text/javascript") for name in SCRIPTS},
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
MAX_CONNECTIONS = 64
"""Maximum number of connections; a browser opens at most six for all its tabs."""
REQUEST_TIMEOUT = 5.0
"""Timeout in seconds for a connection's first request, and for a request's body."""
IDLE_TIMEOUT = 15.0
"""Seconds without a request after which a connection is closed."""
CLOSE_TIMEOUT = 0.2
"""Seconds that the connections of open pages have to close when relay-client exits."""
FOREIGN_HOST = "this server accepts only the address 127.0.0.1; hint: use the link that relay-client printed"
FOREIGN_ORIGIN = "this server accepts no requests of other pages; hint: use the link that relay-client printed"
NO_SESSION = (
    "this link has already been used or belongs to another relay-client; hint: use the last link that relay-client "
    "printed"
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PageServer:
    """Serves the page during an `async with` block.

    Args:
        service: Answers the requests.
        show_link: Called by the method of this name, and after a link was used with a new one; the link must not reach
            a log.
        port: The local port; 0 for a free one.
    """

    def __init__(self, service: ControlService, show_link: Callable[[str], None], port: int = 0) -> None:
        self._service = service
        self._show_link = show_link
        self._port = port
        self._feed = Feed(service)
        self._subscriber = Subscriber(lambda _event: None)
        self._without_request: dict[asyncio.BaseProtocol, asyncio.TimerHandle] = {}
        """The connections that have not sent a request yet, each with the timer that closes it."""
        self._access = PageAccess(port, _secret)
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> PageServer:
        runner = web.AppRunner(
            self._application(), access_log=None, shutdown_timeout=CLOSE_TIMEOUT, keepalive_timeout=IDLE_TIMEOUT
        )
        peers = PeerCheck(frozenset({own_user(), ROOT}), lambda sentence: logger.warning("page: %s", sentence))
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._feed)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            try:
                server = await LocalServer.open(LOOPBACK, self._port, lambda: self._protocol(runner), peers.admits)
            except OSError as error:
                raise LocalPortInUse(
                    f"cannot listen on port {self._port}: {error.strerror}",
                    hint="choose another port, or use --ui without a port",
                ) from None
            stack.push_async_callback(server.wait_closed)
            stack.callback(server.close)
            self._port = server.port
            self._access = PageAccess(self._port, _secret)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self._stack.aclose()

    def show_link(self) -> None:
        """Show a link to the page."""
        self._show_link(self._access.link)

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._check], client_max_size=MAX_BODY)
        for path in FILES:
            application.router.add_get(path, _file)
        application.router.add_post("/session", self._open_session)
        application.router.add_get("/updates", self._updates)
        application.router.add_get("/stacks", partial(self._answer, Stacks()))
        application.router.add_get("/hang", partial(self._answer, Hang()))
        application.router.add_get("/values", partial(self._read, Evaluate))
        application.router.add_get("/differences", partial(self._read, Diff))
        return application

    def _protocol(self, runner: web.AppRunner) -> asyncio.BaseProtocol:
        """Return the protocol for a connection that was just accepted."""
        if runner.server is None or len(runner.server.connections) >= MAX_CONNECTIONS:
            return _Refused()
        protocol = runner.server()
        close = asyncio.get_running_loop().call_later(REQUEST_TIMEOUT, self._close_silent, protocol)
        self._without_request[protocol] = close
        return protocol

    def _close_silent(self, protocol: web.RequestHandler) -> None:
        del self._without_request[protocol]
        protocol.force_close()

    @web.middleware
    async def _check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse foreign hosts, origins and sessions before the request is handled."""
        if (timer := self._without_request.pop(request.protocol, None)) is not None:
            timer.cancel()
        if not self._access.is_own_host(request.headers.get("Host")):
            return _refusal(FOREIGN_HOST)
        if not self._access.is_own_origin(request.headers.get("Origin")):
            return _refusal(FOREIGN_ORIGIN)
        if request.path not in FILES and request.path != "/session" and not self._has_session(request):
            return _refusal(NO_SESSION)
        try:
            response = await handler(request)
        except RelayDebugError as error:
            response = web.json_response({"error": {"sentence": error.sentence, "hint": error.hint}})
        except web.HTTPException as error:
            error.headers.update(HEADERS)
            raise
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    def _has_session(self, request: web.Request) -> bool:
        kind, _, key = request.headers.get("Authorization", "").partition(" ")
        return kind == "Bearer" and self._access.is_valid(key)

    async def _open_session(self, request: web.Request) -> web.Response:
        token = await first_completed(request.text(), timeout=REQUEST_TIMEOUT)
        key = self._access.open_session(str(token)) if token else None
        if key is None:
            return _refusal(NO_SESSION)
        self.show_link()
        return web.json_response({"key": key})

    async def _updates(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        with contextlib.suppress(ConnectionError):  # the tab was closed
            await response.prepare(request)
            async with TaskSet() as tasks, contextlib.aclosing(self._feed.updates()) as updates:
                tasks.spawn(self._service.look_for_agents(), name="look for agents for a page")
                async for update in updates:
                    await response.write(f"data: {json.dumps(update, separators=(',', ':'))}\n\n".encode())
        return response

    async def _read(self, verb: type[Evaluate], request: web.Request) -> web.Response:
        """Answer with the table of the values of a path; other expressions are refused before they reach the job."""
        expression = as_plain_read(request.query.get("path", ""), completely=verb is Diff)
        return await self._answer(verb(expression, ports=request.query.get("ports", "")), request)

    async def _answer(self, verb: Verb, _request: web.Request) -> web.Response:
        answer = cast("Answer", await self._service.answer(verb, self._subscriber))
        return web.json_response({**encode(answer), "text": with_hint(answer)})


class _Refused(asyncio.Protocol):
    """A connection that exceeds the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it."""
        cast("asyncio.Transport", transport).abort()


async def _file(request: web.Request) -> web.Response:
    name, kind = FILES[request.path]
    content = (resources.files(__package__) / "assets" / name).read_bytes()
    return web.Response(body=content, content_type=kind, charset="utf-8")


def _refusal(sentence: str) -> web.Response:
    return web.Response(status=403, text=f"{sentence}\n", headers=HEADERS)


def _secret() -> str:
    return secrets.token_urlsafe(32)
