"""Facts about Microsoft's hyco-https against our listener, an ordinary HTTP client and our relay."""

import asyncio
import contextlib
import io
import os
from collections.abc import AsyncIterator

import aiohttp
import pytest

from relay_core.net import HttpRequest, HttpResponse, HybridConnectionListener, http_headers
from tests.interop.kit import event, needs, node
from tests.support.machine.deadline import DEADLINE
from tests.support.network.relay import LocalRelay

pytestmark = needs("hyco-https")

LIMIT = aiohttp.ClientTimeout(DEADLINE)


@pytest.fixture
async def listener(relay: LocalRelay) -> AsyncIterator[LocalRelay]:
    """Run a hyco-https listener."""
    async with node("hyco_https_listener.js", relay, "listen") as process:
        assert {"event": "listening"} == await event(process)
        yield relay


@contextlib.asynccontextmanager
async def requested(relay: LocalRelay, method: str, path: str, **options) -> AsyncIterator[aiohttp.ClientResponse]:
    headers = await http_headers(relay.endpoint, relay.sender) | options.pop("headers", {})
    url = relay.endpoint.http_url(path)
    async with (
        aiohttp.ClientSession(timeout=LIMIT) as session,
        session.request(method, url, headers=headers, ssl=relay.tls, **options) as response,
    ):
        yield response


async def chunks(body: bytes) -> AsyncIterator[bytes]:
    """Yield a body in parts, which makes its length unknown."""
    for start in range(0, len(body), 50_000):
        yield body[start : start + 50_000]


async def test_a_hyco_https_listener_answers_a_get(listener: LocalRelay) -> None:
    """It sees method, path, query and headers, but no token."""
    async with requested(listener, "GET", "/describe?a=1", headers={"X-App": "1"}) as response:
        seen = await response.json()
        assert "1.1 localhost" == response.headers["Via"]
    assert ("GET", "/myhc/describe?a=1") == (seen["method"], seen["url"])
    headers = {name.lower(): value for name, value in seen["headers"].items()}
    assert "1" == headers["x-app"]
    assert "servicebusauthorization" not in headers


@pytest.mark.parametrize("size", [1, 65_536, 65_537, 1_000_000])
@pytest.mark.parametrize("path", ["/echo", "/pipe"])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_hyco_https_listener_echoes_posts(listener: LocalRelay, size: int, path: str, chunked: bool) -> None:
    """Small and large bodies, with a length and chunked, collected and piped."""
    body = os.urandom(size)
    data = chunks(body) if chunked else io.BytesIO(body)
    async with requested(listener, "POST", path, data=data) as response:
        assert (200, body) == (response.status, await response.read())


async def test_a_hyco_https_listener_responds_in_parts(listener: LocalRelay) -> None:
    """Ten writes before the end arrive as one body."""
    async with requested(listener, "GET", "/parts") as response:
        assert b"".join(b"%d" % part * 20_000 for part in range(10)) == await response.read()


@pytest.mark.parametrize("status", [201, 204, 304, 400, 404, 418, 500, 502, 504])
async def test_statuses_of_a_hyco_https_listener_arrive(listener: LocalRelay, status: int) -> None:
    """With the text that the listener chose."""
    async with requested(listener, "GET", f"/status/{status}") as response:
        assert (status, "chosen by the listener", b"") == (response.status, response.reason, await response.read())


async def test_head_has_no_body(listener: LocalRelay) -> None:
    """The response to a HEAD request ends with its head."""
    async with requested(listener, "HEAD", "/parts") as response:
        assert (200, b"") == (response.status, await response.read())


async def test_a_hyco_https_listener_serves_many_at_once(listener: LocalRelay) -> None:
    """Each of 40 requests gets its own response, on whichever way it went."""

    async def one(number: int) -> bool:
        body = b"%d" % number + os.urandom(100_000 if number % 4 == 0 else 1_000)
        async with requested(listener, "POST", "/echo", data=body) as response:
            return body == await response.read()

    assert all(await asyncio.gather(*(one(number) for number in range(40))))


async def test_hyco_https_requests_reach_our_listener(relay: LocalRelay) -> None:
    """A sender with Microsoft's token gets its bodies back: small, at the limit, large, chunked, 40 at once."""

    async def handle(request: HttpRequest) -> HttpResponse:
        if request.path.endswith("/hello"):
            return HttpResponse(200, b"hello", {"Content-Type": "text/plain"})
        if request.path.endswith("/418"):
            return HttpResponse(418, reason="teapot")
        return HttpResponse(200, await request.read(limit=4_000_000))

    async with HybridConnectionListener(relay.endpoint, relay.listener, tls=relay.tls, handler=handle):
        while not relay.server.metrics().active_listeners:
            await asyncio.sleep(0.01)
        async with node("hyco_https_sender.js", relay, "send") as sender:
            result = await event(sender)
            assert await sender.wait() == 0
    assert {
        "get": [200, "hello", "1.1 localhost"],
        "small": True,
        "limit": True,
        "large": True,
        "chunked": True,
        "status": [418, "teapot"],
        "head": 0,
        "many": True,
    } == result
