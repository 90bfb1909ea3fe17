import contextlib
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.tunnel import frames
from relay_core.tunnel.frames import split_first
from relay_core.tunnel.limits import MAX_CONTROL_PAYLOAD, MIN_VERSION, VERSION, Limits
from relay_core.tunnel.messages import Greeting, Refused, Resume, Resumed, Welcome
from relay_core.tunnel.outcomes import ProtocolBreach, Refusal

ID, SECRET, NONCE = b"i" * 16, b"s" * 32, b"n" * 16
RESUME = Resume.make(SECRET, ID, epoch=7, received=1234, nonce=NONCE)
GREETING = Greeting(Limits(1000, 2000, 3), {"host": "node-0"}, capabilities=5)

numbers = st.integers(1, 2**31 - 1)
greetings = st.builds(
    Greeting,
    limits=st.builds(Limits, numbers, numbers, numbers),
    info=st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4),
    version=st.integers(0, 65535),
    min_version=st.integers(0, 65535),
    capabilities=st.integers(0, 2**32 - 1),
)


def payload_of(data: bytes) -> bytes:
    frame, rest = split_first(data)
    assert rest == b""
    return frame.payload


@given(greeting=greetings)
def test_a_hello_is_read_as_it_was_written(greeting):
    """Every field of a HELLO comes back."""
    assert Greeting.decode(payload_of(greeting.encode())) == greeting


@given(greeting=greetings, session_id=st.binary(min_size=16, max_size=16), secret=st.binary(min_size=32, max_size=32))
def test_a_welcome_is_read_as_it_was_written(greeting, session_id, secret):
    """Every field of a WELCOME comes back, and its secret stays out of repr()."""
    welcome = Welcome(session_id, secret, greeting)
    assert Welcome.decode(payload_of(welcome.encode())) == welcome
    assert repr(secret) not in repr(welcome)


def test_resume_and_resumed_are_read_as_they_were_written():
    """Their fields come back, and the proofs hold."""
    resume = Resume.decode(payload_of(RESUME.encode()))
    assert resume == RESUME
    assert resume.verify(SECRET)
    resumed = Resumed.decode(payload_of(Resumed.make(SECRET, resume, 99).encode()))
    assert (resumed.epoch, resumed.received) == (7, 99)
    assert resumed.verify(SECRET, RESUME)


@given(text=st.text(max_size=40), refusal=st.sampled_from(Refusal))
def test_a_refusal_is_read_as_it_was_written(text, refusal):
    """Reason and sentence come back; what cannot be encoded is replaced."""
    refused = Refused.decode(payload_of(Refused(refusal, text).encode()))
    assert refused == Refused(refusal, text.encode(errors="replace").decode())


@pytest.mark.parametrize("change", [{"session_id": b"j" * 16}, {"epoch": 8}, {"received": 1235}, {"nonce": b"m" * 16}])
def test_a_resume_that_was_changed_proves_nothing(change):
    """The proof covers every field, and the secret."""
    assert not dataclasses.replace(RESUME, **change).verify(SECRET)
    assert not RESUME.verify(b"t" * 32)


def test_a_resumed_proves_only_its_own_resume():
    """An answer with other numbers, or to another attempt, or a client's proof sent back, proves nothing."""
    resumed = Resumed.make(SECRET, RESUME, 99)
    assert not dataclasses.replace(resumed, received=100).verify(SECRET, RESUME)
    assert not dataclasses.replace(resumed, epoch=8).verify(SECRET, RESUME)
    assert not resumed.verify(b"t" * 32, RESUME)
    assert not resumed.verify(SECRET, Resume.make(SECRET, ID, epoch=7, received=1234, nonce=b"m" * 16))
    assert not Resumed(RESUME.epoch, RESUME.received, RESUME.proof).verify(SECRET, RESUME)


def test_later_versions_may_add_fields_to_a_resume():
    """Bytes behind the last known field are ignored."""
    assert Resume.decode(payload_of(RESUME.encode()) + b"more") == RESUME


def test_every_first_frame_has_the_versions_that_its_sender_speaks():
    """Magic, version and oldest version are in the same place, whatever the frame."""
    for data in (
        GREETING.encode(),
        Welcome(ID, SECRET, GREETING).encode(),
        RESUME.encode(),
        Resumed.make(SECRET, RESUME, 1).encode(),
        Refused(Refusal.VERSION, "").encode(),
    ):
        assert data[0] in frames.FIRST_FRAMES
        assert payload_of(data)[:8] == b"RDT1" + VERSION.to_bytes(2, "big") + MIN_VERSION.to_bytes(2, "big")


@pytest.mark.parametrize(
    ("version", "min_version", "common"),
    [
        (VERSION, MIN_VERSION, VERSION),
        (VERSION + 5, MIN_VERSION, VERSION),
        (VERSION + 5, VERSION + 1, None),
        (0, 0, None),
    ],
)
def test_the_newest_common_version_is_chosen(version, min_version, common):
    """Two sides speak the newest version that both know, or part."""
    assert dataclasses.replace(GREETING, version=version, min_version=min_version).common_version() == common


@pytest.mark.parametrize("decode", [Greeting.decode, Welcome.decode, Resume.decode, Resumed.decode, Refused.decode])
@given(data=st.binary(max_size=150), magic=st.booleans())
def test_any_payload_is_a_message_or_malformed(decode, data, magic):
    """Garbage, with the right magic or without, is a breach and nothing else."""
    with contextlib.suppress(ProtocolBreach):
        decode(b"RDT1" + data if magic else data)


def test_limits_of_nothing_are_malformed():
    """A peer that takes no bytes would stop everything, so it is not believed."""
    payload = bytearray(payload_of(GREETING.encode()))
    payload[12:16] = bytes(4)
    with pytest.raises(ProtocolBreach, match="max_payload"):
        Greeting.decode(bytes(payload))


def test_an_info_that_is_too_long_is_refused_where_it_is_made():
    """A HELLO and a WELCOME keep within the limit of their frame."""
    with pytest.raises(ValueError, match="bytes"):
        Greeting(Limits(), {"a": "x" * MAX_CONTROL_PAYLOAD}).encode()
