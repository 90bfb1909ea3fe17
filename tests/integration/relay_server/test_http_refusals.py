"""Facts about tokens of HTTP requests, and about requests and responses that the relay does not forward."""

import asyncio
import json
from urllib.parse import quote

import pytest

from tests.integration.relay_server.http_requests import (
    ask,
    get_request,
    rendezvous,
    respond,
    response,
)
from tests.support.network.raw_websocket import BINARY, CLOSE, TEXT

KIB = 1024


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


@pytest.mark.parametrize(
    ("path", "auth", "status", "text"),
    [
        ("/hc", lambda relay: [], 401, "no security token"),
        ("/nothing", lambda relay: [], 401, "no security token"),
        ("/hc", lambda relay: relay.auth("agent"), 401, "'Send' claim"),
        ("/hc", lambda relay: relay.auth("client", lifetime=-60), 401, "expired"),
        ("/nothing", lambda relay: relay.auth("root", "nothing"), 404, "Endpoint does not exist."),
        # language: keep - Azure's text
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
    limits = {"accept_timeout": 0.1, "http_timeout": 3600.0} if large else {"http_timeout": 0.1}
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


async def test_a_rejection_at_the_address_is_forwarded(relay):
    """A listener may reject an HTTP request as it rejects a WebSocket."""
    control = await relay.listen()
    sender = await ask(relay)
    sent = await get_request(control)
    assert 410 == (await relay.refused_accept(sent, "&sb-hc-statusCode=421&sb-hc-statusDescription=not%20here")).status
    answer = await sender.answer()
    assert (421, "not here") == (answer.status, answer.reason)


async def test_the_number_of_waiting_requests_is_limited(start_relay):
    """A Send key is enough to wait, so the number is limited; the next one is a 503."""
    relay = await start_relay(limits={"max_waiting_senders": 2})
    control = await relay.listen()
    for _ in range(2):
        await ask(relay)
        await get_request(control)
    sender = await ask(relay)
    assert 503 == (await sender.answer()).status


async def test_an_idle_connection_makes_room_for_a_new_one(relay):
    """A connection that waits for its next request is dropped if no descriptor is left, and no other one is."""
    control = await relay.listen()
    busy = await ask(relay)
    waiting = await get_request(control)
    idle = await ask(relay)
    await respond(control, await get_request(control))
    assert "keep-alive" == (await idle.answer()).headers["connection"]
    assert [True, False] == [relay.server._free_descriptor() for _ in range(2)]
    assert b"" == await idle.read_until_end()
    await respond(control, waiting)
    assert 200 == (await busy.answer()).status
