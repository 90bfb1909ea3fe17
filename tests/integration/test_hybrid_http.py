"""Facts about HTTP requests between our listener and an ordinary HTTP client, over a real relay."""

import asyncio
import contextlib
import io
import os
from collections.abc import AsyncIterator

import aiohttp
import pytest

from relay_core.auth import credential_from_connection_string
from relay_core.errors import ConnectionLost, ProtocolError
from relay_core.hyco.connection_string import ConnectionString
from relay_core.hyco.listener import ListenerState
from relay_core.net import (
    HttpHandler,
    HttpRequest,
    HttpResponse,
    HybridConnectionListener,
    connect,
    http_headers,
)
from tests.support.machine.deadline import DEADLINE
from tests.support.network.relay import LocalRelay, recycle_listeners

KIB = 1024


@contextlib.asynccontextmanager
async def serving(
    relay: LocalRelay, handler: HttpHandler | None, down: asyncio.Event | None = None
) -> AsyncIterator[HybridConnectionListener]:
    """Run a listener; the block begins when it listens, and `down` is set when it has lost its control channel."""
    up = asyncio.Event()

    def note(state: ListenerState, _error: object) -> None:
        if state is ListenerState.LISTENING:
            up.set()
        elif up.is_set() and down is not None:
            down.set()

    async with HybridConnectionListener(
        relay.endpoint, relay.listener, handler=handler, tls=relay.tls, on_state=note
    ) as listener:
        await asyncio.wait_for(up.wait(), DEADLINE)
        yield listener


@contextlib.asynccontextmanager
async def requested(
    relay: LocalRelay, method: str = "GET", path: str = "", **options
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Send a request as documented: with aiohttp, and a header from `http_headers`."""
    headers = await http_headers(relay.endpoint, relay.sender) | options.pop("headers", {})
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(DEADLINE)) as session,
        session.request(method, relay.endpoint.http_url(path), headers=headers, ssl=relay.tls, **options) as response,
    ):
        yield response


async def echo(request: HttpRequest) -> HttpResponse:
    return HttpResponse(200, await request.read(limit=8 * KIB * KIB), {"X-Method": request.method})


async def test_a_request_has_method_path_query_headers_and_address(relay: LocalRelay) -> None:
    """The handler gets what the client sent, without the token."""
    seen: list[HttpRequest] = []

    async def handle(request: HttpRequest) -> HttpResponse:
        seen.append(request)
        return HttpResponse(201, b"made", {"X-Answer": "yes"}, reason="as requested")

    async with (
        serving(relay, handle),
        requested(relay, "PUT", "/a%20b?c=%20d", headers={"X-App": "1"}) as response,
    ):
        assert (201, "as requested", "yes", b"made") == (
            response.status,
            response.reason,
            response.headers["X-Answer"],
            await response.read(),
        )
    (request,) = seen
    assert ("PUT", "/myhc/a b", "c=%20d") == (request.method, request.path, request.query)
    assert ("1", None) == (request.header("x-app"), request.header("ServiceBusAuthorization"))
    assert request.remote_endpoint is not None
    assert "127.0.0.1" == request.remote_endpoint.address


@pytest.mark.parametrize("size", [0, 1, 64 * KIB, 64 * KIB + 1, 3 * KIB * KIB])
async def test_bodies_of_any_size_arrive(relay: LocalRelay, size: int) -> None:
    """On the control channel up to 64 KiB, over a rendezvous above, in both directions."""
    body = os.urandom(size)
    async with serving(relay, echo), requested(relay, "POST", data=io.BytesIO(body)) as response:
        assert body == await response.read()


async def test_bodies_are_streamed_in_both_directions(relay: LocalRelay) -> None:
    """A handler reads parts while the client sends, and the client reads parts while the handler sends."""
    received, sent = asyncio.Event(), asyncio.Event()

    async def upload() -> AsyncIterator[bytes]:
        yield b"first"
        await received.wait()
        yield b"second"

    async def handle(request: HttpRequest) -> HttpResponse:
        parts = aiter(request)
        assert b"first" == await anext(parts)
        received.set()
        assert b"second" == b"".join([part async for part in parts])
        return HttpResponse(200, download())

    async def download() -> AsyncIterator[bytes]:
        yield b"third"
        await sent.wait()
        yield b""
        yield b"fourth"

    async with serving(relay, handle), requested(relay, "POST", data=upload()) as response:
        assert b"third" == await asyncio.wait_for(response.content.read(5), DEADLINE)
        sent.set()
        assert b"fourth" == await response.content.read()


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
@pytest.mark.parametrize("streamed", [False, True])
async def test_some_responses_have_no_body(relay: LocalRelay, method: str, status: int, streamed: bool) -> None:
    """The handler's body is not sent; HEAD gets its length."""

    async def parts() -> AsyncIterator[bytes]:
        yield b"body"

    async def handle(_request: HttpRequest) -> HttpResponse:
        return HttpResponse(status, parts() if streamed else b"body")

    async with serving(relay, handle), requested(relay, method) as response:
        assert (status, b"") == (response.status, await response.read())
        if method == "HEAD" and not streamed:
            assert "4" == response.headers["Content-Length"]


async def test_many_requests_at_once(relay: LocalRelay) -> None:
    """Small and large requests are served concurrently, and each client gets its own response."""

    async def one(number: int) -> bool:
        body = b"%d" % number + os.urandom((200 if number % 3 == 0 else 1) * KIB)
        async with requested(relay, "POST", data=body) as response:
            return body == await response.read()

    async with serving(relay, echo):
        assert all(await asyncio.gather(*(one(number) for number in range(40))))


@pytest.mark.parametrize(
    "broken",
    [
        lambda: 1 / 0,
        lambda: HttpResponse(200, headers={"X": "a\r\nSet-Cookie: b"}),
        lambda: HttpResponse(200, headers={"X: a\r\nY": "b"}),
        lambda: HttpResponse(99),
        lambda: None,
    ],
    ids=["raises", "line break in a value", "line break in a name", "status", "no response"],
)
async def test_a_failing_handler_is_a_500(relay: LocalRelay, caplog, broken) -> None:
    """The sender receives nothing about the error, and the listener continues."""
    answers = [broken, lambda: HttpResponse(200)]

    async def handle(_request: HttpRequest) -> HttpResponse:
        return answers.pop(0)()

    async with serving(relay, handle):
        async with requested(relay) as response:
            assert (500, b"") == (response.status, await response.read())
        async with requested(relay) as response:
            assert 200 == response.status
    assert "the HTTP request handler failed" in caplog.text


async def test_a_body_that_fails_ends_the_senders_connection(relay: LocalRelay) -> None:
    """After the head, only the missing end of the body can show the error."""

    async def parts() -> AsyncIterator[bytes]:
        yield b"begin"
        raise ProtocolError("the source of the body failed")

    async def handle(_request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, parts())

    async with serving(relay, handle), requested(relay) as response:
        assert response.connection is not None
        transport = response.connection.transport
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()
        transport.close()  # aiohttp does not, and Python 3.10 warns about a transport that only its peer has closed


async def test_without_a_handler_requests_are_refused(relay: LocalRelay) -> None:
    """A listener of WebSockets answers 501 instead of letting the sender wait."""
    async with serving(relay, None), requested(relay, "POST", data=b"x") as response:
        assert 501 == response.status


async def test_the_number_of_requests_is_limited(relay: LocalRelay, monkeypatch) -> None:
    """A request above the limit is refused at once, and served when another one has ended."""
    monkeypatch.setattr("relay_core.net.hybrid.http.MAX_REQUESTS", 1)
    began, proceed = asyncio.Event(), asyncio.Event()

    async def handle(_request: HttpRequest) -> HttpResponse:
        began.set()
        await proceed.wait()
        return HttpResponse(200)

    async def status() -> int:
        async with requested(relay) as response:
            return response.status

    async with serving(relay, handle):
        first = asyncio.ensure_future(status())
        await asyncio.wait_for(began.wait(), DEADLINE)
        assert 503 == await status()
        proceed.set()
        assert [200, 200] == [await first, await status()]


async def test_a_handler_may_ignore_the_body(relay: LocalRelay) -> None:
    """The response is sent before the request's body has arrived."""

    async def handle(_request: HttpRequest) -> HttpResponse:
        return HttpResponse(413, b"too long")

    async def endless() -> AsyncIterator[bytes]:
        yield b"x" * 100
        await asyncio.Event().wait()

    async with serving(relay, handle), requested(relay, "POST", data=endless()) as response:
        assert (413, b"too long") == (response.status, await response.read())


async def test_a_body_that_is_too_long_is_not_collected(relay: LocalRelay) -> None:
    """`read` has a limit."""

    async def handle(request: HttpRequest) -> HttpResponse:
        with pytest.raises(ProtocolError, match="longer than 10 bytes"):
            await request.read(limit=10)
        return HttpResponse(413)

    async with serving(relay, handle), requested(relay, "POST", data=b"x" * 11) as response:
        assert 413 == response.status


async def test_a_sender_that_leaves_ends_the_reading_of_its_body(relay: LocalRelay) -> None:
    """The handler gets ConnectionLost."""
    ended = asyncio.get_running_loop().create_future()
    began = asyncio.Event()

    async def handle(request: HttpRequest) -> HttpResponse:
        began.set()
        try:
            await request.read()
        except ConnectionLost as error:
            ended.set_result(error.code)
        return HttpResponse()

    async def endless() -> AsyncIterator[bytes]:
        yield b"x" * 100
        await asyncio.Event().wait()

    async def send() -> None:
        async with requested(relay, "POST", data=endless()):
            pass

    async with serving(relay, handle):
        sending = asyncio.ensure_future(send())
        await asyncio.wait_for(began.wait(), DEADLINE)
        sending.cancel()
        assert 1006 == await asyncio.wait_for(ended, DEADLINE)


async def test_a_response_survives_the_loss_of_the_control_channel(relay: LocalRelay) -> None:
    """It is sent at the request's address, which stays valid when the control channel is recycled."""
    proceed, began, down = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handle(_request: HttpRequest) -> HttpResponse:
        began.set()
        await proceed.wait()
        return HttpResponse(200, b"still here")

    async def get() -> bytes:
        async with requested(relay) as response:
            return await response.read()

    async with serving(relay, handle, down):
        getting = asyncio.ensure_future(get())
        await asyncio.wait_for(began.wait(), DEADLINE)
        recycle_listeners(relay.server)
        await asyncio.wait_for(down.wait(), DEADLINE)
        proceed.set()
        assert b"still here" == await asyncio.wait_for(getting, DEADLINE)


async def test_websockets_and_requests_share_a_listener(relay: LocalRelay) -> None:
    """Offers come by iteration, requests go to the handler."""
    async with serving(relay, echo) as listener:

        async def accept() -> bytes | str:
            async for offer in listener:
                return await (await offer.accept()).receive()
            raise AssertionError("the listener ended")

        accepting = asyncio.ensure_future(accept())
        websocket = await connect(relay.endpoint, relay.sender, tls=relay.tls)
        async with requested(relay, "POST", data=b"request") as response:
            assert b"request" == await response.read()
        await websocket.send("message")
        assert "message" == await accepting
        await websocket.close()


async def test_anonymous_senders_need_no_header() -> None:
    """An empty token gives no header."""
    anonymous = ConnectionString.parse("Endpoint=sb://relay.test;EntityPath=open")
    assert {} == await http_headers(anonymous.endpoint(), credential_from_connection_string(anonymous))
