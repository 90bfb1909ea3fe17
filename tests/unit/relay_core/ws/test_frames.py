from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.ws.frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    MAX_PAYLOAD,
    PING,
    PONG,
    TEXT,
    Chunk,
    Close,
    FrameDecoder,
    Ping,
    Pong,
    Violation,
    close_payload,
    encode_chunks,
    encode_frame,
    encode_message,
)
from tests.support.network.raw_websocket import frame, masked


class Payload(bytes):
    """Bytes with a short repr, because hypothesis warns when it prints an example of more than 30,000 characters."""

    def __repr__(self):
        return super().__repr__() if len(self) <= 1000 else f"<{len(self)} bytes>"


MASKS = st.binary(min_size=4, max_size=4)
PAYLOADS = st.binary(max_size=300) | st.sampled_from([125, 126, 127, 65535, 65536, 3 * MAX_PAYLOAD + 5]).map(
    lambda size: Payload(bytes(range(256)) * (size // 256) + bytes(range(size % 256)))
)


def messages(events):
    """Return events with the pieces of each message joined, as a receiver of the frames would see them."""
    joined = []
    open_message = None
    for event in events:
        if not isinstance(event, Chunk):
            joined.append(event)
            continue
        if event.opcode != CONTINUATION:
            open_message = [event.opcode, event.reserved, b""]
        open_message[2] += event.payload
        if event.fin:
            joined.append(tuple(open_message))
            open_message = None
    if open_message is not None:
        joined.append(("unfinished", *open_message))
    return joined


def feed_in_pieces(data, cuts, **options):
    decoder = FrameDecoder(**options)
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [event for start, end in pairwise(edges) for event in decoder.feed(memoryview(data)[start:end])]


@st.composite
def frame_sequences(draw):
    """Return bytes of whole messages, fragmented at will and with control frames between the fragments."""
    data = bytearray()
    expected = []
    for _ in range(draw(st.integers(0, 4))):
        opcode = draw(st.sampled_from([TEXT, BINARY]))
        pieces = draw(st.lists(PAYLOADS, min_size=1, max_size=4))
        for index, piece in enumerate(pieces):
            if draw(st.booleans()):
                control = draw(st.sampled_from([PING, PONG]))
                payload = draw(st.binary(max_size=125))
                data += frame(control, payload, mask=draw(MASKS))
                expected.append(Ping(payload) if control == PING else Pong(payload))
            last = index == len(pieces) - 1
            data += frame(CONTINUATION if index else opcode, piece, fin=last, mask=draw(MASKS))
        expected.append((opcode, 0, Payload(b"".join(pieces))))
    return Payload(data), expected


@given(frame_sequences(), st.lists(st.integers(0), max_size=8))
def test_decoding_gives_what_was_encoded(sequence, cuts):
    """Decoding returns the encoded messages and control frames, however the bytes are split into chunks."""
    data, expected = sequence
    # A control frame between fragments comes out before the message it stands in, as `expected` lists it.
    assert expected == messages(feed_in_pieces(data, cuts))


@given(st.binary(max_size=400), st.lists(st.integers(0), max_size=12), st.booleans())
def test_any_bytes_give_events_or_one_violation(data, cuts, extensions):
    """Random bytes never raise, and the way they are split into chunks has no effect on the events."""
    whole = FrameDecoder(extensions_agreed=extensions).feed(data)
    assert messages(whole) == messages(feed_in_pieces(data, cuts, extensions_agreed=extensions))
    assert sum(isinstance(event, Violation | Close) for event in whole) <= 1


@given(
    st.lists(st.binary(min_size=1, max_size=3 * MAX_PAYLOAD), min_size=1, max_size=2),
    st.lists(st.integers(0), max_size=4),
)
def test_chunks_are_short_and_keep_the_message_boundary(payloads, cuts):
    """No chunk is longer than MAX_PAYLOAD, and exactly the last one of a message is final."""
    data = b"".join(frame(BINARY, payload) for payload in payloads)
    chunks = feed_in_pieces(data, cuts)
    assert max(len(chunk.payload) for chunk in chunks) <= MAX_PAYLOAD
    assert all(chunk.payload for chunk in chunks)
    assert len(payloads) == sum(chunk.fin for chunk in chunks)


def test_a_frame_is_streamed_before_it_is_complete():
    """Payload is returned by the call that received it."""
    data = frame(BINARY, b"x" * 1_000_000)
    decoder = FrameDecoder()
    assert [Chunk(BINARY, b"x" * 10, fin=False)] == decoder.feed(data[: 14 + 10])
    assert [Chunk(CONTINUATION, b"x" * 7, fin=False)] == decoder.feed(data[24 : 24 + 7])


def test_an_empty_message_is_one_empty_chunk():
    """An empty frame is reported, because to some clients it means the end of a stream."""
    assert [Chunk(BINARY, b"", fin=True)] == FrameDecoder().feed(frame(BINARY))


def test_events_own_their_bytes():
    """The caller may overwrite its buffer as soon as feed returns."""
    buffer = bytearray(frame(TEXT, b"hello") + frame(PING, b"p"))
    events = FrameDecoder().feed(memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    assert [Chunk(TEXT, b"hello", fin=True), Ping(b"p")] == events


def test_reserved_bits_pass_on_the_first_chunk_of_a_frame_if_agreed():
    """An agreed extension's bits stay on the frame that carried them."""
    events = FrameDecoder(extensions_agreed=True).feed(frame(BINARY, b"z" * (MAX_PAYLOAD + 1), reserved=0x40))
    assert [0x40, 0] == [event.reserved for event in events]


def test_nothing_is_decoded_after_a_close():
    """A Close is the last event, with its code and reason."""
    decoder = FrameDecoder()
    events = decoder.feed(frame(CLOSE, close_payload(1000, "bye")) + frame(TEXT, b"late"))
    assert [Close(close_payload(1000, "bye"))] == events
    assert (1000, "bye") == (events[0].code, events[0].reason)
    assert [] == decoder.feed(frame(TEXT, b"later"))


def test_a_close_without_a_code_is_1005():
    """An empty Close frame is valid."""
    (event,) = FrameDecoder().feed(frame(CLOSE))
    assert (1005, "") == (event.code, event.reason)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(encode_frame(TEXT, b"x"), 1002, id="not masked"),
        pytest.param(frame(0x3, b""), 1002, id="unknown data opcode"),
        pytest.param(frame(0xB, b""), 1002, id="unknown control opcode"),
        pytest.param(frame(PING, b"", fin=False), 1002, id="fragmented control frame"),
        pytest.param(frame(PING, b"x" * 126), 1002, id="control frame too long"),
        pytest.param(frame(PING, b"", reserved=0x40), 1002, id="reserved bit on a control frame"),
        pytest.param(frame(TEXT, b"", reserved=0x40), 1002, id="reserved bit without an extension"),
        pytest.param(frame(CONTINUATION, b""), 1002, id="continuation of nothing"),
        pytest.param(frame(TEXT, b"a", fin=False) + frame(TEXT, b"b"), 1002, id="message inside a message"),
        pytest.param(frame(CLOSE, b"\x03"), 1002, id="close with half a code"),
        pytest.param(frame(CLOSE, (1005).to_bytes(2, "big")), 1002, id="close with a code that may not be sent"),
        pytest.param(frame(CLOSE, (999).to_bytes(2, "big")), 1002, id="close with a code below 1000"),
        pytest.param(frame(CLOSE, (1000).to_bytes(2, "big") + b"\xff"), 1007, id="close reason is not text"),
        pytest.param(b"\x82\xff" + b"\x80" + bytes(7) + bytes(4), 1002, id="length with the highest bit"),
    ],
)
def test_violations_have_their_close_code(data, code):
    """Each violation of RFC 6455 is the last event and has the close code for it."""
    decoder = FrameDecoder()
    event = decoder.feed(data)[-1]
    assert isinstance(event, Violation)
    assert code == event.code
    assert [] == decoder.feed(frame(TEXT, b"more"))


@given(PAYLOADS, st.sampled_from([TEXT, BINARY]))
def test_encoded_messages_decode_to_themselves(payload, opcode):
    """A client of another library reads the encoder's output as one message in frames of at most MAX_PAYLOAD bytes."""
    encoded = encode_message(opcode, payload)
    # The decoder reads clients' frames, so mask them first, frame by frame.
    remasked, position = bytearray(), 0
    while position < len(encoded):
        length, header = encoded[position + 1], 2
        if length == 126:
            length, header = int.from_bytes(encoded[position + 2 : position + 4], "big"), 4
        assert length <= MAX_PAYLOAD
        body = encoded[position + header : position + header + length]
        first, fin = encoded[position], encoded[position] & 0x80
        remasked += frame(first & 0x0F, body, fin=bool(fin))
        position += header + length
    assert [(opcode, 0, payload)] == messages(FrameDecoder().feed(remasked))


def test_chunks_are_encoded_in_one_piece():
    """Frames of several chunks follow each other without gaps."""
    chunks = [Chunk(TEXT, b"a", fin=False, reserved=0x40), Chunk(CONTINUATION, b"", fin=True)]
    assert b"\x41\x01a\x80\x00" == encode_chunks(chunks)


def test_a_long_close_reason_is_cut_at_a_character():
    """A Close frame's payload never exceeds 125 bytes nor ends inside a character."""
    payload = close_payload(1011, "ä" * 100)
    assert len(payload) <= 125
    assert "ä" * 61 == payload[2:].decode()


@given(st.binary(max_size=70), MASKS)
def test_unmasking_is_exclusive_or(payload, mask):
    """The fast unmasking agrees with the definition."""
    from relay_core.ws.frames import apply_mask

    assert masked(payload, mask) == apply_mask(payload, mask)
