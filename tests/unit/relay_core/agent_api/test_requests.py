"""Facts about named requests and their responses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.agent_api.questions import ReadStacks
from relay_core.agent_api.requests import (
    Digest,
    Failure,
    FileDigest,
    Listen,
    Ready,
    Request,
    Wake,
    parse_request,
    stream_name,
)
from relay_core.records import encode, parse, parse_or_none
from tests.unit.relay_core.agent_api.strategies import JSON, PORTS, TEXTS

REQUESTS = st.builds(Wake, PORTS) | st.builds(Listen, PORTS) | st.builds(Digest, PORTS, st.text(min_size=1))


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (Wake(5678), "wake/5678"),
        (ReadStacks(), "stacks"),
        (Digest(5678, "models/net.py"), "digest/5678/models/net.py"),
        (Digest(5678, "/opt/net.py"), "digest/5678//opt/net.py"),
        (Listen(65535), "listen/65535"),
    ],
)
def test_names_on_the_wire(request_: Request, name: str) -> None:
    """Agents and clients of other versions rely on these names."""
    assert name == stream_name(request_)
    assert request_ == parse_request(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "wake",
        "wake/",
        "wake/0",
        "wake/65536",
        "wake/-1",
        "wake/x",
        "wake/٣",
        "wake/1/2",
        "listen/1e3",
        "logs",
        "stacks/locals",
        "digest/5678",
        "digest/5678/",
    ],
)
def test_what_is_not_a_request(name: str) -> None:
    """An unknown name or an invalid port is not a request."""
    assert parse_request(name) is None


@given(REQUESTS)
def test_round_trip(request_: Request) -> None:
    """Encoding and parsing give the same request."""
    assert request_ == parse_request(stream_name(request_))


@given(st.text() | st.from_regex(r"(wake|listen|stacks|digest)(/.*)?", fullmatch=True))
def test_any_name(name: str) -> None:
    """Any name is a request or None, and a request survives another round trip."""
    found = parse_request(name)
    assert found is None or found == parse_request(stream_name(found))


@given(st.builds(Failure, TEXTS, TEXTS) | st.just(Ready()))
def test_round_trip_of_responses(answer: Failure | Ready) -> None:
    """A response is parsed as its own class, and as no other."""
    kinds = (Failure, Ready)
    assert [answer] == [read for kind in kinds if (read := parse_or_none(kind, encode(answer))) is not None]


@given(JSON | st.dictionaries(st.sampled_from(["error", "hint", "ready"]), JSON))
def test_any_response(value: object) -> None:
    """Any JSON can be parsed."""
    for kind in (Failure, Ready):
        read = parse_or_none(kind, value)
        assert read is None or read == parse_or_none(kind, encode(read))


def test_line_ends_do_not_change_a_digest() -> None:
    """Contents that differ in line ends only have the same digest, which survives the wire."""
    assert FileDigest.of(b"a\nb\n") == FileDigest.of(b"a\r\nb\r\n") != FileDigest.of(b"a\nc\n")
    assert FileDigest.of(b"a") == parse(FileDigest, encode(FileDigest.of(b"a")))
    assert FileDigest() == parse(FileDigest, {"sha256": 3}) == parse(FileDigest, None)


def test_texts_are_cleaned() -> None:
    """`clean` is applied to every text."""
    assert Failure("NO", "TRY") == parse_or_none(Failure, {"error": "no", "hint": "try"}, str.upper)
