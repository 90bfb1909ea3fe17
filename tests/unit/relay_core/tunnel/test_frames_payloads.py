import contextlib
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.tunnel import frames
from relay_core.tunnel.limits import MAX_TEXT
from relay_core.tunnel.outcomes import Breach, ProtocolBreach, Refusal, ResetCode

values = st.none() | st.booleans() | st.integers() | st.text(max_size=20)
json_objects = st.dictionaries(st.text(max_size=10), values | st.lists(values, max_size=3), max_size=4)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


@given(target=st.integers(1, 65535) | names, metadata=json_objects)
def test_an_open_is_read_as_it_was_written(target, metadata):
    """Ports, names and metadata come back."""
    assert frames.decode_open(frames.encode_open(target, metadata)) == (target, metadata)


@pytest.mark.parametrize("target", [0, 65536, -1, "", "x" * 256, "\ud800"])
def test_a_target_that_cannot_be_sent_is_refused_where_it_is_made(target):
    """Only ports and names of 1 to 255 bytes are targets."""
    with pytest.raises(ValueError):  # noqa: PT011 - the sentence depends on what is wrong
        frames.encode_open(target, {})


@pytest.mark.parametrize("value", [{"a": "x" * 5000}, {"a": object()}, {"a": float("nan")}])
def test_metadata_that_cannot_be_sent_is_refused_where_it_is_made(value):
    """Only JSON of at most 4 KiB is metadata."""
    with pytest.raises(ValueError):  # noqa: PT011 - the sentence depends on what is wrong
        frames.encode_open(1, value)


NUMBERS = [partial(frames.decode_number, kind) for kind in (frames.U32, frames.U64)]


@pytest.mark.parametrize("decode", [frames.decode_open, frames.decode_code, *NUMBERS])
@given(data=st.binary(max_size=80))
def test_any_payload_is_a_value_or_malformed(decode, data):
    """Garbage is a breach and nothing else."""
    with contextlib.suppress(ProtocolBreach):
        decode(data)


@pytest.mark.parametrize(
    "data", [b"[]", b"1", b"{", b"\xff", b'{"a":' * 5000, b'{"a":' + b"[" * 30000, b'{"a":' + b"9" * 9999 + b"}"]
)
def test_what_is_no_json_object_is_malformed(data):
    """Lists, numbers, cut, deep and huge JSON are all the same breach."""
    with pytest.raises(ProtocolBreach) as caught:
        frames.decode_json(data)
    assert caught.value.breach is Breach.MALFORMED


@given(code=st.sampled_from(ResetCode), text=st.text(max_size=600))
def test_a_reset_keeps_its_code_and_the_beginning_of_its_sentence(code, text):
    """A long or unencodable sentence is cut or repaired and never a reason to fail."""
    payload = frames.encode_code(code, text)
    assert len(payload) <= 2 + MAX_TEXT
    got_code, got_text = frames.decode_code(payload)
    assert ResetCode(got_code) is code
    assert text.encode(errors="replace").decode().startswith(got_text)


def test_codes_of_later_versions_are_unspecified():
    """An unknown number is a reason that this version does not know, and final refusals stay final."""
    assert ResetCode(4711) is ResetCode.UNSPECIFIED
    assert Refusal(4711) is Refusal.UNSPECIFIED
    assert {refusal for refusal in Refusal if refusal.final} == {
        Refusal.KEY_MISMATCH,
        Refusal.VERSION,
        Refusal.UNKNOWN_SESSION,
        Refusal.SEQ_GAP,
        Refusal.BAD_PROOF,
    }
