"""Facts about the base protocol of DAP."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.dap.framing import MAX_HEADER, MessageDecoder, encode
from relay_core.errors import ProtocolError

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), lambda inner: st.lists(inner, max_size=3)
)
messages = st.dictionaries(st.text(), json_values, max_size=4).map(lambda fields: {**fields, "type": "event"})


def frame(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def test_wire_format():
    """A message is its length in bytes, an empty line and UTF-8 JSON."""
    assert encode({"type": "event", "a": "é"}) == b'Content-Length: 29\r\n\r\n{"type":"event","a":"\\u00e9"}'


@given(st.lists(messages, max_size=5), st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_any_chunks_give_the_messages_back(sent, sizes):
    """Encoded messages are decoded unchanged and in order, however the bytes are cut."""
    data = b"".join(encode(message) for message in sent)
    decoder = MessageDecoder()
    received = []
    while data:
        sizes = [*sizes[1:], sizes[0]]
        received += decoder.receive_data(data[: sizes[0]])
        data = data[sizes[0] :]
    decoder.receive_eof()
    assert received == sent


@given(st.lists(st.binary(max_size=64)))
def test_any_bytes_give_messages_or_a_protocol_error(chunks):
    """Any input gives messages or a ProtocolError."""
    decoder = MessageDecoder()
    try:
        for chunk in chunks:
            assert all(isinstance(message, dict) for message in decoder.receive_data(chunk))
        decoder.receive_eof()
    except ProtocolError:
        pass


def test_header_fields_are_case_insensitive_and_may_be_many():
    """Other fields are ignored, and spaces and case do not matter."""
    body = b'{"type":"event"}'
    data = b"Content-Type: application/json\r\ncontent-LENGTH :  %d \r\n\r\n%b" % (len(body), body)
    assert MessageDecoder().receive_data(data) == [{"type": "event"}]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "a header has no Content-Length"),
        (b"Content-Length: ten\r\n\r\n", "Content-Length is not a number"),
        (b"Content-Length: -1\r\n\r\n", "Content-Length is not a number"),
        (b"Content-Length: 99999999999999999999\r\n\r\n", "Content-Length is not a number"),
        (b"\x16\x03\x01" + bytes(MAX_HEADER), f"no header in the first {MAX_HEADER} bytes"),
        (frame(b"{"), "a message is not JSON"),
        (frame(b"\xff\xfe"), "a message is not JSON"),
        (frame(b"[" * 100_000), "a message is not JSON"),
        (frame(b"[]"), "a message has no type"),
        (frame(b'{"type": 1}'), "a message has no type"),
    ],
)
def test_what_is_not_dap(data, complaint):
    """Each kind of invalid bytes is rejected with its reason."""
    with pytest.raises(ProtocolError, match=complaint):
        MessageDecoder().receive_data(data)


def test_size_limit():
    """A message above the limit is rejected when its length is read, before its body is buffered."""
    message = encode({"type": "event", "text": "x" * 100})
    assert MessageDecoder(max_body=len(message)).receive_data(message)
    with pytest.raises(ProtocolError, match="a message of 17000000 bytes exceeds the limit"):
        MessageDecoder().receive_data(b"Content-Length: 17000000\r\n\r\n")


@pytest.mark.parametrize("part", [1, 10, 22, 25, -1])
def test_end_inside_a_message(part):
    """An end inside a header or a body is a ProtocolError, an end between messages is not."""
    decoder = MessageDecoder()
    decoder.receive_data(encode({"type": "event"}))
    decoder.receive_eof()
    decoder.receive_data(encode({"type": "event"})[:part])
    with pytest.raises(ProtocolError, match="closed in the middle of a Debug Adapter Protocol message"):
        decoder.receive_eof()
