import json
import re
import time
from email.utils import parsedate_to_datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_server.protocol.http import (
    MAX_HEAD_BYTES,
    HeadReader,
    RequestHead,
    error_answer,
    plain_answer,
    response_head,
    switching_protocols,
)
from relay_server.protocol.refusals import Refusal, no_listeners

REQUEST = (
    b"GET /$hc/My%20Hc?a=1&&b=%2B HTTP/1.1\r\nHost: x\r\nX-App: 1\r\nx-app: 2\r\n0: zero\r\n"
    b"Upgrade: h2c, WebSocket\r\nConnection: keep-alive, Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
HEAD = HeadReader().feed(REQUEST)


def without(name):
    return RequestHead(HEAD.method, HEAD.target, tuple(pair for pair in HEAD.headers if pair[0] != name))


def changed(name, value):
    return RequestHead(
        HEAD.method, HEAD.target, tuple((key, value if key == name else old) for key, old in HEAD.headers)
    )


def status_of(data):
    """Return the status of the refusal of these bytes, or None."""
    try:
        HeadReader().feed(data)
    except Refusal as refusal:
        return refusal.status
    return None


def test_a_head_is_read_as_it_was_sent():
    """Target and header names keep every byte, and a header named 0 is tolerated."""
    assert ("GET", "/$hc/My%20Hc", "a=1&&b=%2B") == (HEAD.method, HEAD.path, HEAD.query)
    assert ("X-App", "1") in HEAD.headers
    assert ("0", "zero") in HEAD.headers
    assert "1,2" == HEAD.header("X-APP")
    assert HEAD.header("absent") is None
    assert "1,2" == HEAD.joined_headers()["X-App"]
    assert "x-app" not in HEAD.joined_headers()


@given(st.lists(st.integers(0, len(REQUEST)), max_size=10), st.binary(max_size=50))
def test_chunking_never_changes_the_head(cuts, rest):
    """However a request arrives, head and trailing bytes are the same."""
    data = REQUEST + rest
    reader, found, late = HeadReader(), None, b""
    for start, end in pairwise([0, *sorted(cuts), len(data)]):
        if found is not None:
            late += data[start:end]
        elif start != end:
            found = reader.feed(data[start:end])
    assert HEAD == found
    assert rest == reader.trailing() + late


@given(st.binary(min_size=1, max_size=300))
def test_any_bytes_are_a_head_or_a_refusal_or_incomplete(data):
    """Garbage is refused with a 4xx and never raises anything else."""
    assert status_of(data) in {None, 400, 431}


@pytest.mark.parametrize("size", [MAX_HEAD_BYTES + 1, 3 * MAX_HEAD_BYTES])
@pytest.mark.parametrize("step", [1000, 1_000_000])
def test_a_head_that_is_too_large_is_refused(size, step):
    """The limit holds whether the head arrives in one piece or in many, complete or not."""
    for end in (b"", b"\r\n\r\n"):
        data = b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * size + end
        reader = HeadReader()
        with pytest.raises(Refusal) as caught:
            for start in range(0, len(data), step):
                reader.feed(data[start : start + step])
        assert 431 == caught.value.status


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\nX: 1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: 1\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\n",
        b"GET / HTTP/1.1\r\nHost: x\n\n",
    ],
)
@pytest.mark.parametrize("step", [1, 1000])
def test_a_bare_line_feed_is_a_400(data, step):
    """A line of the head ends with CR LF only, because a proxy in front may see a different head otherwise."""
    reader = HeadReader()
    with pytest.raises(Refusal) as caught:
        for start in range(0, len(data), step):
            reader.feed(data[start : start + step])
    assert 400 == caught.value.status


def test_a_body_may_contain_line_feeds():
    """Only the head is checked, even if the body arrives with it."""
    reader = HeadReader()
    assert reader.feed(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n\na\n\n").has_body
    assert b"\na\n\n" == reader.trailing()


@pytest.mark.parametrize(
    ("headers", "has_body"),
    [
        (b"", False),
        (b"Content-Length: 0\r\n", False),
        (b"Content-Length: 5\r\n", True),
        (b"Transfer-Encoding: chunked\r\n", True),
    ],
)
def test_a_body_is_announced_by_its_headers(headers, has_body):
    """Content-Length and Transfer-Encoding say whether a body follows."""
    assert has_body == HeadReader().feed(b"POST / HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n").has_body


def test_the_accept_value_is_the_one_of_the_specification():
    """RFC 6455 section 1.3 gives this key and answer."""
    assert "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" == HEAD.check_upgrade()


@pytest.mark.parametrize(
    "head",
    [
        RequestHead("POST", HEAD.target, HEAD.headers),
        RequestHead("GET", HEAD.target, HEAD.headers, content_length=5),
        without("Upgrade"),
        without("Connection"),
        without("Sec-WebSocket-Key"),
        without("Sec-WebSocket-Version"),
        changed("Upgrade", "h2c"),
        changed("Sec-WebSocket-Version", "8"),
        changed("Sec-WebSocket-Key", "c2hvcnQ="),
        changed("Sec-WebSocket-Key", "no base64!"),
    ],
)
def test_an_upgrade_must_be_complete(head):
    """A request that lacks a part of the websocket handshake is a 400."""
    with pytest.raises(Refusal) as caught:
        head.check_upgrade()
    assert 400 == caught.value.status


def test_the_101_carries_what_was_chosen():
    """Subprotocol and extensions stand in the answer only if there are some."""
    full = switching_protocols("A=", tracking="T", subprotocol="p", extensions="e; x=1").decode()
    assert full.startswith("HTTP/1.1 101 Switching Protocols\r\n")
    for line in (
        "Sec-WebSocket-Accept: A=",
        "Sec-WebSocket-Protocol: p",
        "Sec-WebSocket-Extensions: e; x=1",
        "TrackingId: T",
    ):
        assert f"\r\n{line}\r\n" in full
    bare = switching_protocols("A=", tracking="T", subprotocol=None, extensions=None).decode()
    assert "Protocol:" not in bare
    assert "Extensions:" not in bare


def test_an_error_has_the_same_text_in_its_phrase_and_body():
    """The reason phrase is repeated as JSON, with a code for programs."""
    head, _, body = error_answer(no_listeners(), "Text. TrackingId:1", tracking="1").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 404 Text. TrackingId:1\r\n")
    assert {"error": {"code": "NoListeners", "message": "Text. TrackingId:1"}} == json.loads(body)
    assert f"Content-Length: {len(body)}".encode() in head


@given(st.text(max_size=2000))
def test_no_reason_can_break_out_of_its_line(reason):
    """Whatever text a listener rejects with, the answer has one status line and the expected headers."""
    head = plain_answer(421, reason, tracking="T")
    lines = head.split(b"\r\n")
    assert [b"TrackingId: T", b"Connection: close", b"Content-Length: 0"] == lines[1:4]
    assert lines[4].startswith(b"Date: ")
    assert [b"", b""] == lines[5:]
    assert len(lines[0]) < 1100
    assert all(byte >= 0x20 and byte != 0x7F for byte in lines[0])


@pytest.mark.parametrize(
    "answer",
    [
        switching_protocols("A=", tracking="T", subprotocol=None, extensions=None),
        error_answer(no_listeners(), "Text", tracking="1"),
        plain_answer(410, "Gone", tracking="T"),
        response_head(200, "OK", []),
    ],
    ids=["101", "error", "rejection", "response"],
)
def test_every_answer_has_the_time(answer):
    """The Date header is the current time, so that a client can compare its clock."""
    (date,) = re.findall(rb"\r\nDate: ([^\r]*)\r\n", answer)
    assert abs(parsedate_to_datetime(date.decode()).timestamp() - time.time()) < 3600  # since the tests were collected


def test_the_date_of_a_listener_is_kept():
    """A response that already has a Date header does not get a second one."""
    then = "Sun, 06 Nov 1994 08:49:37 GMT"
    assert [then.encode()] == re.findall(rb"(?i)date: ([^\r]*)", response_head(200, "OK", [("date", then)]))


@pytest.mark.parametrize("status", [100, 101, 204, 304])
def test_answers_that_have_no_body_announce_none(status):
    """Statuses without a body carry no Content-Length."""
    assert b"Content-Length" not in plain_answer(status, "", tracking="T")


def test_repr_shows_no_target():
    """A request's representation holds neither its URL nor its headers: both may carry tokens."""
    assert "RequestHead(method='GET', content_length=0, http_version='1.1')" == repr(HEAD)


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=5), st.integers(1, 30), st.booleans())
def test_chunking_never_changes_the_body(parts, step, chunked):
    """Whatever the packets, the body is the same, its end is found, and the next request is left over."""
    body = b"".join(parts)
    framed = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n" if chunked else body
    header = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(body)
    data = b"POST / HTTP/1.1\r\nHost: x\r\n" + header + b"\r\n\r\n" + framed + b"GET"
    reader, head, received, complete, later = HeadReader(), None, b"", False, b""
    for piece in (data[start : start + step] for start in range(0, len(data), step)):
        if complete:
            later += piece
            continue
        if head is None:
            head = reader.feed(piece)
            piece = b""  # noqa: PLW2901 - it belongs to the head
        if head is not None:
            part, complete = reader.feed_body(piece)
            received += part
    assert (body, True, b"GET") == (received, complete, reader.trailing() + later)
