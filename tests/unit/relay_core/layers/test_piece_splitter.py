"""Facts about splitting a stream at message boundaries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.dap.framing import encode
from relay_core.layers.layer import ToLocal
from relay_core.layers.piece import MAX_PARSED, Kind, MessageSplitter

messages = st.text(max_size=30).map(lambda text: encode({"type": "event", "text": text}))
junk = st.sampled_from(
    [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b"Content-Length: x\r\n\r\n{}", b"\r\n", b"Content"]
)


def cut(data: bytes, sizes: list[int]) -> tuple[MessageSplitter[ToLocal], list[bytes], list[bytes]]:
    """Feed data in chunks of these sizes, repeated as needed; return the splitter, the pieces and their bodies."""
    splitter, raws, bodies = MessageSplitter(ToLocal), [], []
    while data:
        sizes = [*sizes[1:], sizes[0]]
        for piece in splitter.feed(data[: sizes[0]]):
            raws.append(piece.data)
            bodies += [piece.body] if piece.body else []
        data = data[sizes[0] :]
    return splitter, raws, bodies


@given(st.lists(messages | junk, max_size=6), st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_every_byte_is_passed_on(parts, sizes):
    """Whatever the bytes are and however they are chunked, all are passed on, in order."""
    splitter, raws, _ = cut(b"".join(parts), sizes)
    assert b"".join(raws) + b"".join(piece.data for piece in splitter.end()) == b"".join(parts)


@given(st.lists(messages, max_size=6), st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_messages_come_whole(sent, sizes):
    """Each message is one piece, with its body."""
    splitter, raws, bodies = cut(b"".join(sent), sizes)
    assert raws == sent
    assert [raw[-len(body) :] for raw, body in zip(raws, bodies, strict=True)] == bodies
    assert splitter.end() == []


def test_long_message_comes_in_parts():
    """A message above the limit is passed on as it arrives, without a body, and nothing may be inserted into it."""
    long = encode({"type": "event", "text": "x" * MAX_PARSED})
    splitter = MessageSplitter(ToLocal)
    assert [(b"", Kind.PART, long[:100])] == [
        (piece.body, piece.kind, piece.data) for piece in splitter.feed(long[:100])
    ]
    pieces = splitter.feed(long[100:] + encode({"type": "event"}))
    assert [(b"", Kind.LAST_PART), (b'{"type":"event"}', Kind.MESSAGE)] == [
        (piece.body, piece.kind) for piece in pieces
    ]


@pytest.mark.parametrize("data", [b"\x16\x03\x01", b"GET /", b"Content-Lengthy", b"x"])
def test_other_protocols_are_not_delayed(data):
    """After the first byte that cannot belong to a message, everything is passed on immediately, for good."""
    splitter = MessageSplitter(ToLocal)
    assert [(data, Kind.FOREIGN)] == [(piece.data, piece.kind) for piece in splitter.feed(data)]
    assert [b""] == [piece.body for piece in splitter.feed(encode({"type": "event"}))]


def test_header_without_an_end():
    """A header that does not end is not DAP."""
    data = b"Content-Length: 1" + b" " * 5000
    assert b"".join(piece.data for piece in MessageSplitter(ToLocal).feed(data)) == data
