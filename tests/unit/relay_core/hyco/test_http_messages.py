"""Facts about the messages of relayed HTTP requests."""

import json

import pytest

from relay_core.errors import ProtocolError
from relay_core.hyco.http import RemoteEndpoint, Request, Response, has_no_body
from relay_core.hyco.messages import parse_listener_message, parse_server_message

ADDRESS = "wss://g13/$hc/hyco?sb-hc-action=request&sb-hc-id=x"
REQUEST = Request(
    ADDRESS,
    id="7b17ae72-fddb-4c9b-a8f9-94c2654aa0fe_G14",
    method="POST",
    target="/hyco/a b?c=%20",
    headers={"Host": "h"},
    has_body=True,
    remote_endpoint=RemoteEndpoint("203.0.113.9", 51544),
)
RESPONSE = Response("7b17ae72_G14", 418, "teapot", {"X-App": "1"}, has_body=True)


@pytest.mark.parametrize("request_", [REQUEST, Request(ADDRESS)], ids=["full", "short"])
def test_request_round_trip(request_: Request) -> None:
    """Both forms of a request encode to what they were parsed from."""
    assert request_ == parse_server_message(request_.encode())


def test_the_short_form_has_only_the_address() -> None:
    """Listeners recognise it by what it does not contain."""
    assert {"request": {"address": ADDRESS}} == json.loads(Request(ADDRESS).encode())


@pytest.mark.parametrize(
    "body",
    [
        {"address": "https://x?y"},
        {"address": 1},
        {"address": ADDRESS, "method": 1},
        {"method": "GET", "requestTarget": "@host/"},
        {"method": "GET", "id": 1},
    ],
)
def test_unusable_requests_are_refused(body: dict) -> None:
    """A listener connects only to wss addresses with a query."""
    with pytest.raises(ProtocolError):
        Request.parse(body)


def test_response_round_trip() -> None:
    """A response encodes to what it was parsed from."""
    assert RESPONSE == parse_listener_message(RESPONSE.encode())


@pytest.mark.parametrize(("given", "status"), [(200, 200), ("204", 204), (999, 999), (450, 450)])
def test_a_status_may_be_a_string(given: object, status: int) -> None:
    """Microsoft's example has a string, its clients send a number."""
    assert status == Response.parse({"requestId": "1", "statusCode": given}).status


@pytest.mark.parametrize("given", [None, True, 99, 101, 199, 1000, "2x0", "²00", 200.0, []])
def test_other_statuses_are_invalid(given: object) -> None:
    """A status below 200 would announce a second response."""
    response = Response.parse({"requestId": "1", "statusCode": given})
    with pytest.raises(ProtocolError, match="status"):
        response.check()


def test_headers_of_responses_are_checked() -> None:
    """A response with a line break in a header can be parsed, but not used."""
    response = Response.parse({"requestId": "1", "statusCode": 200, "responseHeaders": {"a": "b\r\nc: d"}})
    with pytest.raises(ProtocolError, match="header"):
        response.check()


def test_a_response_without_request_id_is_refused() -> None:
    """It answers no request."""
    with pytest.raises(ProtocolError, match="requestId"):
        parse_listener_message('{"response": {"statusCode": 200}}')


@pytest.mark.parametrize(
    ("method", "status", "bodiless"),
    [("HEAD", 200, True), ("GET", 204, True), ("POST", 304, True), ("GET", 200, False), ("HEAD", 404, True)],
)
def test_some_responses_have_no_body(method: str, status: int, bodiless: bool) -> None:
    """HEAD, 204 and 304."""
    assert bodiless == has_no_body(method, status)


def test_repr_hides_secrets() -> None:
    """The address is a credential; headers and target may hold secrets."""
    for secret in (ADDRESS, "Host", "a b"):
        assert secret not in repr(REQUEST)
    assert "X-App" not in repr(RESPONSE)
