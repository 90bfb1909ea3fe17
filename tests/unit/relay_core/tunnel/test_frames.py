from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.tunnel import frames
from relay_core.tunnel.frames import HEADER_SIZE, Frame, FrameDecoder, encode_frame, pack_header, split_first
from relay_core.tunnel.limits import MAX_CONTROL_PAYLOAD
from relay_core.tunnel.outcomes import Breach, ProtocolBreach

frame_lists = st.lists(
    st.builds(
        Frame,
        type=st.integers(0, 255),
        flags=st.integers(0, 255),
        stream=st.integers(0, 2**32 - 1),
        seq=st.integers(0, 2**64 - 1),
        payload=st.binary(max_size=300),
    ),
    max_size=6,
)


def encode(frame: Frame) -> bytes:
    return encode_frame(frame.type, frame.payload, stream=frame.stream, seq=frame.seq, flags=frame.flags)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted(position % (len(data) + 1) for position in at), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def test_a_header_has_twenty_bytes_in_network_order():
    """The layout is the documented one, to the byte."""
    header = pack_header(frames.DATA, 0x01020304, 0x0506, 0x0708)
    assert header == bytes.fromhex("03000000 01020304 00000506 0000000000000708")
    assert HEADER_SIZE == len(header)


def test_no_first_frame_looks_like_tls_or_text_or_azbridge():
    """The first byte alone distinguishes a first frame from a TLS record, azbridge's 0x01, a JSON object or letters."""
    for first in frames.FIRST_FRAMES:
        assert first not in range(0x14, 0x18)
        assert first != 1
        assert chr(first).isdigit()


@given(frames=frame_lists, at=st.lists(st.integers(0, 5000), max_size=20))
def test_frames_survive_any_cutting(frames, at):
    """What is encoded is decoded, however the bytes are cut."""
    data = b"".join(map(encode, frames))
    decoder = FrameDecoder(300)
    assert [frame for piece in cut(data, at) for frame in decoder.feed(piece)] == frames


@given(data=st.binary(max_size=400), at=st.lists(st.integers(0, 400), max_size=8))
def test_any_bytes_are_frames_or_a_breach(data, at):
    """Garbage gives the same frames and the same breach, however it is cut, and never anything else."""

    def outcome(pieces):
        decoder, seen = FrameDecoder(100), []
        try:
            for piece in pieces:
                for frame in decoder.feed(piece):
                    seen.append(frame)  # noqa: PERF402 - what came before the breach counts
        except ProtocolBreach as breach:
            return seen, breach.breach
        return seen, None

    assert outcome([data]) == outcome(cut(data, at))


@pytest.mark.parametrize(("kind", "limit"), [(frames.DATA, 1000), (frames.STATUS, MAX_CONTROL_PAYLOAD)])
def test_a_frame_above_the_limit_is_found_at_its_header(kind, limit):
    """One byte more than allowed is a breach before any of the payload has come; the limit itself is fine."""
    assert list(FrameDecoder(1000).feed(pack_header(kind, 0, limit, 0))) == []
    with pytest.raises(ProtocolBreach) as caught:
        list(FrameDecoder(1000).feed(pack_header(kind, 0, limit + 1, 0)))
    assert caught.value.breach is Breach.FRAME_TOO_LARGE


def test_a_decoder_keeps_no_reference_to_what_it_was_fed():
    """The caller may reuse its buffer at once."""
    buffer = bytearray(encode_frame(frames.DATA, b"abcdef", stream=1, seq=1))
    decoder = FrameDecoder(100)
    assert list(decoder.feed(memoryview(buffer)[:23])) == []
    rest = bytes(buffer[23:])
    buffer[:] = bytes(len(buffer))
    assert [frame.payload for frame in decoder.feed(rest)] == [b"abcdef"]


@given(payload=st.binary(max_size=200), trailing=st.binary(max_size=50))
def test_the_first_frame_is_split_off(payload, trailing):
    """What comes behind the first frame is left for the session, and a part of it is not enough."""
    data = encode_frame(frames.WELCOME, payload)
    assert split_first(data + trailing) == (Frame(frames.WELCOME, 0, 0, 0, payload), trailing)
    assert all(split_first(data[:size]) is None for size in range(len(data)))


@pytest.mark.parametrize("data", [b"\x16\x03\x01", b"GET / HTTP/1.1", b"\x01\x00", pack_header(frames.DATA, 1, 1, 1)])
def test_something_else_than_a_first_frame_is_found_at_its_first_byte(data):
    """Whatever is not a first frame is a breach, however short."""
    with pytest.raises(ProtocolBreach) as caught:
        split_first(data[:1])
    assert caught.value.breach is Breach.UNKNOWN_FRAME


def test_a_first_frame_above_the_limit_is_a_breach():
    """Nobody collects a first frame without end."""
    with pytest.raises(ProtocolBreach, match="frame larger than the limit"):
        split_first(pack_header(frames.HELLO, 0, MAX_CONTROL_PAYLOAD + 1, 0))
