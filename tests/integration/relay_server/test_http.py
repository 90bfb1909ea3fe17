"""Facts about HTTP requests that the relay forwards, over real sockets on both sides."""

import asyncio
import json
import os
import uuid

import pytest

from tests.integration.relay_server.http_requests import (
    Sent,
    ask,
    ask_again,
    get_request,
    rendezvous,
    respond,
    response,
)
from tests.support.machine.deadline import DEADLINE
from tests.support.network.raw_websocket import BINARY, CONTINUATION, TEXT, RawConnection

KIB = 1024


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
        assert b"part %d" % index == await asyncio.wait_for(anext(chunks), DEADLINE)
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


async def test_a_client_that_waits_for_100_may_continue(relay):
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
    await respond(control, await get_request(control), status=status, reason="set by the listener")
    answer = await sender.answer()
    assert (status, "set by the listener", "1.1 localhost") == (answer.status, answer.reason, answer.headers["via"])


async def test_requests_and_bytes_are_counted(relay):
    """Metrics count responded requests and the bodies of both directions."""
    control = await relay.listen()
    sender = await ask(relay, "POST", body=b"12345")
    await respond(control, await get_request(control), b"123")
    await sender.answer()
    metrics = relay.server.metrics()
    assert (1, 5, 3) == (metrics.http_requests, metrics.bytes_to_listeners, metrics.bytes_to_senders)


async def test_a_sender_can_choose_its_listener(relay):
    """AllowedListeners counts for HTTP requests, too; without a suitable listener there is a 404."""
    guid = str(uuid.uuid4())
    await relay.listen()
    control = await relay.listen(listener_id=guid)
    for _ in range(4):
        sender = await ask(relay, headers=[("Microsoft-Relay-AllowedListeners", guid)])
        await respond(control, await get_request(control))
        assert 200 == (await sender.answer()).status
    sender = await ask(relay, headers=[("Microsoft-Relay-AllowedListeners", str(uuid.uuid4()))])
    answer = await sender.answer()
    assert (404, True) == (answer.status, answer.reason.startswith("None of the connected listeners meet the"))


async def test_a_client_of_http_1_0_reads_until_the_end(relay):
    """It gets no chunks, and the end of the connection ends the body."""
    control = await relay.listen()
    connection = await RawConnection.dial(relay.target)
    relay.stack.push_async_callback(connection.close)
    token = relay.token("client")
    await connection.send_body(f"GET /hc HTTP/1.0\r\nServiceBusAuthorization: {token}\r\n\r\n".encode())
    sent = await get_request(control)
    websocket = await rendezvous(relay, sent)
    await respond(websocket, sent, b"whole body")
    received = await connection.read_until_end()
    assert received.endswith(b"\r\n\r\nwhole body")
    assert b"chunked" not in received
