"""Facts about pieces of a stream, and the messages in them."""

import json
from typing import Any, cast

import pytest

from relay_core.dap.framing import encode, encode_body
from relay_core.dap.messages import Message
from relay_core.layers.layer import ToLocal, ToPeer
from relay_core.layers.piece import MAX_PARSED, Kind

EVENT: Message = {"seq": 7, "type": "event", "event": "output"}


def received(message: Message) -> ToLocal:
    data = encode(message)
    return ToLocal(data, Kind.MESSAGE, data.index(b"{"))


def head_of(piece: ToLocal) -> tuple[str, str, int]:
    return piece.type, piece.name, piece.seq


def test_a_message_is_what_it_is() -> None:
    """It can be read as its own type only, and has the number of its message."""
    piece = received(EVENT)
    assert (EVENT, None, None) == (piece.event(), piece.request(), piece.response())
    assert (("event", "output", 7), encode(EVENT)) == (head_of(piece), piece.header + piece.body)


def test_a_new_message() -> None:
    """It has the same bytes and the same message as one that was received."""
    made, found = ToLocal.of(EVENT), received(EVENT)
    assert (found, found.body, found.kind) == (made, made.body, made.kind)
    assert made.event() is EVENT
    assert ToPeer.of(EVENT) != made


def test_a_long_message_is_read_only_if_wanted() -> None:
    """A message above the limit is parsed only for a caller that has to look into it."""
    message: Message = {**EVENT, "body": {"output": "x" * MAX_PARSED}}
    piece = received(message)
    assert (b"", None, len(encode(message)) - len(piece.header)) == (piece.body, piece.event(), len(piece.whole_body))
    assert message == piece.event(any_length=True)


@pytest.mark.parametrize("data", [b"[]", b"{", b'{"type": 3}', b""])
def test_what_is_no_message(data: bytes) -> None:
    """Anything else is not a message of any type."""
    piece = ToLocal(data, Kind.MESSAGE)
    assert (None, None, None, 0) == (piece.event(), piece.request(), piece.response(any_length=True), piece.seq)


@pytest.mark.parametrize("kind", [Kind.PLAIN, Kind.PART, Kind.LAST_PART, Kind.FOREIGN, Kind.BROKEN, Kind.CUT])
def test_parts_have_no_message(kind: Kind) -> None:
    """Bytes that are not a whole message have no body, whatever they look like."""
    piece = ToLocal(b"{}", kind)
    assert (b"", b"", None) == (piece.body, piece.whole_body, piece.event(any_length=True))
    assert "ToLocal(b'{}')" == repr(piece)
    assert (kind in {Kind.PLAIN, Kind.LAST_PART}, kind is Kind.FOREIGN) == (piece.can_be_followed, piece.is_foreign)


RESPONSE = {"seq": 8, "type": "response", "request_seq": 3, "success": True, "command": "threads", "body": {"x": "y"}}


@pytest.mark.parametrize("message", [EVENT, RESPONSE, {"seq": 9, "type": "request", "command": "next"}])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,\n", " : ")])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_the_head_is_the_same_in_every_spelling(message: dict[str, Any], separators: Any, *, is_reversed: bool) -> None:
    """Type, name and number are read from the first fields if these are in debugpy's order, else from the message."""
    fields = dict(reversed(message.items())) if is_reversed else message
    body = json.dumps(fields, separators=separators).encode()
    piece = ToLocal(encode_body(body), Kind.MESSAGE, len(encode_body(body)) - len(body))
    assert (message["type"], message.get("event") or message["command"], message["seq"]) == head_of(piece)
    assert message.get("request_seq", 0) == piece.request_seq


def test_the_head_of_a_long_message() -> None:
    """It is read if it is in the usual order; otherwise the message is not parsed for it."""
    fields = {**RESPONSE, "body": {"x": "y" * MAX_PARSED}}
    assert ("response", "threads", 8) == head_of(received(cast("Message", fields)))
    assert ("", "", 0) == head_of(received(cast("Message", dict(reversed(fields.items())))))
