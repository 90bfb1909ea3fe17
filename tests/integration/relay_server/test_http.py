"""Facts about HTTP requests that the relay forwards, over real sockets on both sides."""

import asyncio
import json
import os
from urllib.parse import quote, urlsplit

import pytest

from tests.support.raw_websocket import BINARY, CLOSE, CONTINUATION, TEXT, RawConnection, RawWebSocket, open_websocket

KIB = 1024


class Sent:
    """A `request` message as a listener got it."""

    def __init__(self, fields: dict, body: bytes = b"") -> None:
        self.fields = fields
        self.body = body

    @property
    def target(self) -> str:
        """Path and query of the address."""
        url = urlsplit(self.fields["address"])
        return f"{url.path}?{url.query}"


async def get_request(websocket: RawWebSocket) -> Sent:
    """Read a request and its body."""
    opcode, text = await websocket.read_message()
    assert TEXT == opcode
    message = json.loads(text)
    assert ["request"] == list(message)
    sent = Sent(message["request"])
    if sent.fields.get("body"):
        opcode, sent.body = await websocket.read_message()
        assert BINARY == opcode
    return sent


def response(sent: Sent, status: object = 200, *, body: bool = False, headers=None, reason: str = "") -> bytes:
    fields = {"requestId": sent.fields["id"], "statusCode": status, "statusDescription": reason, "body": body}
    return json.dumps({"response": fields | {"responseHeaders": headers or {}}}).encode()


async def respond(websocket: RawWebSocket, sent: Sent, body: bytes | None = None, **options) -> None:
    """Send a response and, in one frame, its body."""
    await websocket.send(TEXT, response(sent, body=body is not None, **options))
    if body is not None:
        await websocket.send(BINARY, body)


async def ask(relay, method: str = "GET", path: str = "/hc", headers=(), body: bytes = b"", **options) -> RawConnection:
    """Send an HTTP request with a token."""
    connection = await RawConnection.dial(relay.target)
    relay.stack.push_async_callback(connection.close)
    relay.stack.callback(connection.abort)
    await ask_again(relay, connection, method, path, headers, body, **options)
    return connection


async def ask_again(relay, connection, method="GET", path="/hc", headers=(), body=b"", *, auth=None) -> None:
    """Send a request on an open connection."""
    framing = {name.lower() for name, _ in headers} & {"content-length", "transfer-encoding"}
    length = [("Content-Length", str(len(body)))] if body and not framing else []
    auth = relay.auth("client") if auth is None else auth
    await connection.ask(method, path, [("Host", "localhost"), *auth, *length, *headers], body)


async def rendezvous(relay, sent: Sent) -> RawWebSocket:
    """Connect to the address of a request."""
    return await relay.keep(await open_websocket(relay.target, sent.target))


async def test_a_get_and_its_response_use_the_control_channel(relay):
    """The listener gets the request in one message, and its response arrives with Via and a length."""
    control = await relay.listen()
    sender = await ask(relay, path="/hc/sub%20path?a=1&sb-hc-id=x&b=%20", headers=[("X-App", "1"), ("X-App", "2")])
    sent = await get_request(control)
    assert ("GET", "/hc/sub path?a=1&b=%20", False) == tuple(
        sent.fields[name] for name in ("method", "requestTarget", "body")
    )
    assert {"Host": "localhost", "X-App": "1, 2", "Via": "1.1 localhost"} == sent.fields["requestHeaders"]
    assert "127.0.0.1" == sent.fields["remoteEndpoint"]["address"]
    await respond(control, sent, b"hello", status=418, reason="teapot", headers={"X-Answer": "yes"})
    answer = await sender.answer()
    assert (418, "teapot", b"hello") == (answer.status, answer.reason, answer.body)
    assert ("yes", "1.1 localhost", "5") == tuple(
        answer.headers[name] for name in ("x-answer", "via", "content-length")
    )
    assert "application/octet-stream" == answer.headers["content-type"]


@pytest.mark.parametrize("size", [1, 64 * KIB])
async def test_a_small_body_follows_its_request(relay, size):
    """Up to 64 KiB, the body is the next message on the control channel."""
    control = await relay.listen()
    body = os.urandom(size)
    sender = await ask(relay, "POST", body=body)
    sent = await get_request(control)
    assert body == sent.body
    await respond(control, sent, body)
    assert body == (await sender.answer()).body


async def test_a_large_body_uses_a_rendezvous(relay):
    """Above 64 KiB, the listener gets an address; request and body come there, in frames of at most 32 KiB."""
    control = await relay.listen()
    body = os.urandom(1024 * KIB)
    sender = await ask(relay, "PUT", headers=[("Content-Length", str(len(body)))])
    short = await get_request(control)
    assert ["address"] == list(short.fields)
    websocket = await rendezvous(relay, short)
    sending = asyncio.ensure_future(sender.send_body(body))
    sent = Sent(json.loads((await websocket.read_message())[1])["request"])
    assert ("PUT", True) == (sent.fields["method"], sent.fields["body"])
    received, frame = bytearray(), None
    while frame is None or not frame.fin:
        frame = await websocket.read_frame()
        assert len(frame.payload) <= 32 * KIB
        received += frame.payload
    assert body == bytes(received)
    await sending
    await respond(websocket, sent, b"done")
    assert b"done" == (await sender.answer()).body
    assert 1000 == (await websocket.read_frame()).code


async def test_a_chunked_body_uses_a_rendezvous(relay):
    """Its length is not known, so it may be larger than a control message."""
    control = await relay.listen()
    chunked = b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n"
    sender = await ask(relay, "POST", headers=[("Transfer-Encoding", "chunked")], body=chunked)
    websocket = await rendezvous(relay, await get_request(control))
    sent = await get_request(websocket)
    assert b"hello!" == sent.body
    assert "Transfer-Encoding" not in sent.fields["requestHeaders"]
    await respond(websocket, sent)
    assert (200, b"") == ((answer := await sender.answer()).status, answer.body)


async def test_an_empty_chunked_body_is_no_body(relay):
    """An empty binary message would be the end of the stream for some official clients."""
    control = await relay.listen()
    sender = await ask(relay, "POST", headers=[("Transfer-Encoding", "chunked")], body=b"0\r\n\r\n")
    websocket = await rendezvous(relay, await get_request(control))
    sent = await get_request(websocket)
    assert sent.fields["body"] is False
    await respond(websocket, sent, status=204)
    assert 204 == (await sender.answer()).status


@pytest.mark.parametrize("end", ["fin", "close"])
async def test_a_streamed_response_is_chunked(relay, end):
    """A listener may answer a small request at its address; the body ends with its message, or with a Close."""
    control = await relay.listen()
    sender = await ask(relay)
    sent = await get_request(control)
    websocket = await rendezvous(relay, sent)
    await websocket.send(TEXT, response(sent, body=True, headers={"Content-Type": "text/plain"}))
    parts = [os.urandom(100 * KIB) for _ in range(5)]
    for index, part in enumerate(parts):
        await websocket.send(CONTINUATION if index else BINARY, part, fin=end == "fin" and index == 4)
    if end == "close":
        await websocket.send_close()
    answer = await sender.answer()
    assert b"".join(parts) == answer.body
    assert ("chunked", "text/plain") == (answer.headers["transfer-encoding"], answer.headers["content-type"])


async def test_a_streamed_response_arrives_part_by_part(relay):
    """The relay does not wait for the end of a body."""
    control = await relay.listen()
    sender = await ask(relay)
    sent = await get_request(control)
    websocket = await rendezvous(relay, sent)
    await websocket.send(TEXT, response(sent, body=True))
    await sender.reader.readuntil(b"\r\n\r\n")
    chunks = sender.chunks()
    for index in range(3):
        await websocket.send(CONTINUATION if index else BINARY, b"part %d" % index, fin=False)
        assert b"part %d" % index == await asyncio.wait_for(anext(chunks), 10)
    await websocket.send(CONTINUATION, b"")
    assert [] == [chunk async for chunk in chunks]


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
async def test_some_responses_have_no_body(relay, method, status):
    """A body of a listener that sends one anyway is dropped, and the connection stays usable."""
    control = await relay.listen()
    sender = await ask(relay, method)
    sent = await get_request(control)
    await respond(control, sent, b"dropped", status=status, headers={"Content-Length": "7"})
    answer = await sender.answer(bodiless=True)
    assert (status, "transfer-encoding" in answer.headers) == (answer.status, False)
    assert ("7" if status != 204 else None) == answer.headers.get("content-length")
    await ask_again(relay, sender)
    await respond(control, await get_request(control), b"second")
    assert b"second" == (await sender.answer()).body


async def test_a_connection_serves_several_requests(relay):
    """Later requests of a sender are relayed, too, also if they were sent before the response to the first."""
    control = await relay.listen()
    sender = await ask(relay, "POST", body=b"first")
    await ask_again(relay, sender, "POST", body=b"second")
    for expected in (b"first", b"second"):
        sent = await get_request(control)
        assert expected == sent.body
        await respond(control, sent, expected)
        assert expected == (await sender.answer()).body


async def test_responses_may_come_in_any_order(relay):
    """The request id, not the order, connects a response with its request."""
    control = await relay.listen()
    senders, requests = [], []
    for number in range(3):
        senders.append(await ask(relay, "POST", body=b"%d" % number))
        requests.append(await get_request(control))
    for sent in reversed(requests):
        await respond(control, sent, b"answer to " + sent.body)
    for number, sender in enumerate(senders):
        assert b"answer to %d" % number == (await sender.answer()).body


async def test_a_client_that_waits_for_100_is_told_to_continue(relay):
    """The relay answers Expect itself and removes it."""
    control = await relay.listen()
    sender = await ask(relay, "POST", headers=[("Content-Length", "4"), ("Expect", "100-continue")])
    assert (100, "Continue") == ((answer := await sender.answer()).status, answer.reason)
    await sender.send_body(b"body")
    sent = await get_request(control)
    assert (b"body", False) == (sent.body, "Expect" in sent.fields["requestHeaders"])
    await respond(control, sent)
    assert 200 == (await sender.answer()).status


@pytest.mark.parametrize("method", ["DELETE", "OPTIONS", "PATCH", "TRACE", "PROPFIND"])
async def test_methods_are_forwarded(relay, method):
    """The listener gets any method."""
    control = await relay.listen()
    sender = await ask(relay, method)
    sent = await get_request(control)
    assert method == sent.fields["method"]
    await respond(control, sent, status="202")
    assert 202 == (await sender.answer()).status


@pytest.mark.parametrize("status", [200, 201, 301, 400, 404, 418, 450, 500, 502, 504, 999])
async def test_statuses_are_forwarded(relay, status):
    """The sender gets any status of the listener, with Via, which a response of the relay itself does not have."""
    control = await relay.listen()
    sender = await ask(relay)
    await respond(control, await get_request(control), status=status, reason="as the listener says")
    answer = await sender.answer()
    assert (status, "as the listener says", "1.1 localhost") == (answer.status, answer.reason, answer.headers["via"])


# Tokens:


@pytest.mark.parametrize(
    "place",
    [
        lambda token: ("/hc", [("ServiceBusAuthorization", token)]),
        lambda token: (f"/hc?sb-hc-token={quote(token, safe='')}", []),
        lambda token: ("/hc", [("Authorization", token)]),
    ],
    ids=["header", "parameter", "Authorization"],
)
async def test_a_token_counts_in_three_places_and_is_removed(relay, place):
    """The listener never gets the relay's token."""
    control = await relay.listen()
    path, headers = place(relay.token("client"))
    await ask(relay, path=path, headers=headers, auth=[])
    text = json.dumps((await get_request(control)).fields)
    assert "SharedAccessSignature" not in text


async def test_an_applications_authorization_is_forwarded(relay):
    """If the token came in its own header, Authorization belongs to the application."""
    control = await relay.listen()
    await ask(relay, headers=[("Authorization", "Basic abc")])
    assert "Basic abc" == (await get_request(control)).fields["requestHeaders"]["Authorization"]


async def test_an_anonymous_sender_is_served_where_that_is_allowed(relay):
    """Without requiresClientAuthorization no token is needed, and Authorization is the application's."""
    control = await relay.listen("open", headers=relay.auth("agent", "open"))
    sender = await ask(relay, path="/open", headers=[("Authorization", "Basic abc")], auth=[])
    sent = await get_request(control)
    assert "Basic abc" == sent.fields["requestHeaders"]["Authorization"]
    await respond(control, sent, b"welcome")
    assert b"welcome" == (await sender.answer()).body


# Errors of the relay:


@pytest.mark.parametrize(
    ("path", "auth", "status", "text"),
    [
        ("/hc", lambda relay: [], 401, "no security token"),
        ("/nothing", lambda relay: [], 401, "no security token"),
        ("/hc", lambda relay: relay.auth("agent"), 401, "'Send' claim"),
        ("/hc", lambda relay: relay.auth("client", lifetime=-60), 401, "expired"),
        ("/nothing", lambda relay: relay.auth("root", "nothing"), 404, "Endpoint does not exist."),
        ("/hc", lambda relay: relay.auth("client"), 404, "There are no listeners connected for the endpoint."),
    ],
    ids=["no token", "unknown path, no token", "Listen only", "expired", "unknown path", "no listeners"],
)
@pytest.mark.parametrize("body", [b"", b"x" * 300_000])
async def test_refusals(relay, path, auth, status, text, body):
    """Each refusal has its text in the reason phrase and in JSON, and no Via, also if a body is on its way."""
    sender = await ask(relay, "POST", path, body=body, auth=auth(relay))
    answer = await sender.answer()
    assert (status, True) == (answer.status, text in answer.reason)
    assert f"SystemTracker:localhost:{path[1:]}, Timestamp:" in answer.reason
    assert answer.reason == json.loads(answer.body)["error"]["message"]
    assert "via" not in answer.headers


@pytest.mark.parametrize("large", [False, True])
async def test_a_listener_that_does_not_respond_is_a_504(start_relay, large):
    """On the control channel after the limit for responses; before a rendezvous after the limit for connecting."""
    limits = {"accept_timeout": 0.1, "http_timeout": 30.0} if large else {"http_timeout": 0.1}
    relay = await start_relay(limits=limits)
    control = await relay.listen()
    sender = await ask(relay, "POST", body=b"x" * (70 * KIB if large else 1))
    sent = await get_request(control)
    answer = await sender.answer()
    assert (504, True) == (answer.status, answer.reason.startswith("The request was routed to the listener but"))
    assert 400 == (await relay.refused_accept(sent)).status


async def test_a_listener_that_is_silent_at_the_rendezvous_is_a_504(start_relay):
    """The limit begins when the request has been sent."""
    relay = await start_relay(limits={"http_timeout": 0.2})
    control = await relay.listen()
    sender = await ask(relay, "POST", body=b"x" * 70 * KIB)
    websocket = await rendezvous(relay, await get_request(control))
    await get_request(websocket)
    assert 504 == (await sender.answer()).status
    with pytest.raises(asyncio.IncompleteReadError):
        await websocket.read_frame()


async def test_a_pause_in_a_streamed_body_is_limited(start_relay):
    """The response has begun, so the relay drops the connection before the last chunk."""
    relay = await start_relay(limits={"http_timeout": 0.2})
    control = await relay.listen()
    sender = await ask(relay)
    sent = await get_request(control)
    websocket = await rendezvous(relay, sent)
    await websocket.send(TEXT, response(sent, body=True))
    await websocket.send(BINARY, b"part", fin=False)
    received = await sender.read_until_end()
    assert received.endswith(b"4\r\npart\r\n")


async def test_a_sender_that_stops_in_its_body_is_a_408(start_relay):
    """A body that does not arrive occupies no listener."""
    relay = await start_relay(limits={"http_timeout": 0.1})
    await relay.listen()
    sender = await ask(relay, "POST", headers=[("Content-Length", "10")], body=b"half")
    assert 408 == (await sender.answer()).status


async def test_a_listener_that_disconnects_at_the_rendezvous_is_a_502(relay):
    """The sender need not wait for a time limit."""
    control = await relay.listen()
    sender = await ask(relay)
    websocket = await rendezvous(relay, await get_request(control))
    websocket.abort()
    assert 502 == (await sender.answer()).status


@pytest.mark.parametrize(
    "options",
    [
        {"status": 101},
        {"status": "abc"},
        {"status": 200, "headers": {"X": "a\r\nSet-Cookie: b"}},
        {"status": 200, "headers": {"X: y\r\nZ": "a"}},
    ],
    ids=["1xx", "no status", "line break in a value", "line break in a name"],
)
@pytest.mark.parametrize("at_address", [False, True])
async def test_an_invalid_response_is_a_502(relay, options, at_address):
    """What cannot be forwarded safely is not forwarded, and the control channel stays open."""
    control = await relay.listen()
    sender = await ask(relay)
    sent = await get_request(control)
    await respond(await rendezvous(relay, sent) if at_address else control, sent, **options)
    answer = await sender.answer()
    assert (502, "via" in answer.headers) == (answer.status, False)
    sender = await ask(relay)
    await respond(control, await get_request(control))
    assert 200 == (await sender.answer()).status


async def test_a_line_break_in_a_reason_adds_no_header(relay):
    """It becomes a blank."""
    control = await relay.listen()
    sender = await ask(relay)
    await respond(control, await get_request(control), reason="fine\r\nSet-Cookie: a=b")
    answer = await sender.answer()
    assert ("fine Set-Cookie: a=b", False) == (answer.reason, "set-cookie" in answer.headers)


async def test_framing_headers_of_a_response_are_replaced(relay):
    """A listener's framing headers describe its own connection and could desynchronise the sender's."""
    control = await relay.listen()
    sender = await ask(relay)
    headers = {"Content-Length": "1000", "Transfer-Encoding": "chunked", "Connection": "X-Hop", "X-Hop": "1"}
    await respond(control, await get_request(control), b"body", headers=headers)
    answer = await sender.answer()
    assert (b"body", "4") == (answer.body, answer.headers["content-length"])
    assert not {"transfer-encoding", "x-hop"} & set(answer.headers)


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ([("Content-Length", "5"), ("Transfer-Encoding", "chunked")], b"0\r\n\r\n"),
        ([("Content-Length", "5"), ("Content-Length", "6")], b"hello!"),
        ([("Content-Length", "-1")], b""),
        ([("Transfer-Encoding", "gzip, chunked")], b"0\r\n\r\n"),
    ],
    ids=["both", "two lengths", "negative", "unknown coding"],
)
async def test_ambiguous_bodies_are_a_400(relay, headers, body):
    """No listener gets a request whose end two parties could place differently."""
    control = await relay.listen()
    sender = await ask(relay, "POST", headers=headers, body=body)
    assert 400 == (await sender.answer()).status
    sender = await ask(relay, path="/hc/next")
    assert "/hc/next" == (await get_request(control)).fields.get("requestTarget", "/hc/next")


async def test_a_malformed_chunk_is_a_400(relay):
    """It is detected when the listener is ready for the body, and the listener's connection is dropped."""
    control = await relay.listen()
    sender = await ask(relay, "POST", headers=[("Transfer-Encoding", "chunked")], body=b"zz\r\nhello\r\n")
    websocket = await rendezvous(relay, await get_request(control))
    assert 400 == (await sender.answer()).status
    with pytest.raises(asyncio.IncompleteReadError):
        await websocket.read_frame()


async def test_connect_is_not_relayed(relay):
    """A tunnel to another host is not an HTTP request for a listener."""
    sender = await ask(relay, "CONNECT", "example.org:443")
    assert 400 == (await sender.answer()).status


async def test_an_address_serves_one_request_and_one_purpose(relay):
    """It cannot be used twice, nor to accept a WebSocket."""
    control = await relay.listen()
    await ask(relay)
    sent = await get_request(control)
    await rendezvous(relay, sent)
    assert 400 == (await relay.refused_accept(sent)).status
    await ask(relay)
    sent = await get_request(control)
    sent.fields["address"] = sent.fields["address"].replace("sb-hc-action=request", "sb-hc-action=accept")
    assert 400 == (await relay.refused_accept(sent)).status


async def test_a_listener_cannot_answer_anothers_request(relay):
    """A response counts only on the control channel that got the request."""
    control, other = await relay.listen(), await relay.listen("open", headers=relay.auth("agent", "open"))
    sender = await ask(relay)
    sent = await get_request(control)
    await respond(other, sent, b"forged")
    await asyncio.sleep(0)
    await respond(control, sent, b"genuine")
    assert b"genuine" == (await sender.answer()).body


async def test_a_sender_that_leaves_ends_the_rendezvous(relay):
    """The listener's connection is dropped, and a response on the control channel is ignored."""
    control = await relay.listen()
    sender = await ask(relay)
    sent = await get_request(control)
    websocket = await rendezvous(relay, sent)
    sender.abort()
    with pytest.raises(asyncio.IncompleteReadError):
        await websocket.read_frame()
    await respond(control, sent, b"late")
    sender = await ask(relay)
    await respond(control, await get_request(control), b"next")
    assert b"next" == (await sender.answer()).body


async def test_an_oversized_control_response_closes_the_channel(relay):
    """64 KiB is the limit of a body there; a larger one belongs to the address."""
    control = await relay.listen()
    await ask(relay)
    await respond(control, await get_request(control), b"x" * (64 * KIB + 1))
    frame = await control.read_frame()
    assert (CLOSE, 1009) == (frame.opcode, frame.code)


async def test_many_small_bodies_do_not_cost_a_slow_listener_its_channel(relay):
    """Requests to a listener that does not read are sent as addresses instead of bodies."""
    control = await relay.listen(receive_buffer=4096)
    body = b"x" * 64 * KIB
    senders = [await ask(relay, "POST", body=body) for _ in range(120)]
    kinds = set()
    for _ in senders:
        sent = await get_request(control)
        kinds.add("id" in sent.fields)
        socket = control if "id" in sent.fields else await rendezvous(relay, sent)
        if socket is not control:
            sent = await get_request(socket)
        assert body == sent.body
        await respond(socket, sent)
    assert {200} == {(await sender.answer()).status for sender in senders}
    assert 1 == relay.server.metrics().active_listeners
    assert {True, False} == kinds


async def test_shutting_down_refuses_waiting_requests(relay):
    """A request without response is a 503, and idle connections do not delay the end."""
    control = await relay.listen()
    sender = await ask(relay)
    await get_request(control)
    stopping = asyncio.ensure_future(relay.server.stop())
    answer = await sender.answer()
    assert (503, True) == (answer.status, answer.reason.startswith("The relay is shutting down"))
    await stopping


async def test_requests_and_bytes_are_counted(relay):
    """Metrics count responded requests and the bodies of both directions."""
    control = await relay.listen()
    sender = await ask(relay, "POST", body=b"12345")
    await respond(control, await get_request(control), b"123")
    await sender.answer()
    metrics = relay.server.metrics()
    assert (1, 5, 3) == (metrics.http_requests, metrics.bytes_to_listeners, metrics.bytes_to_senders)
