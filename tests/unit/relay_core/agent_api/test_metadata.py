"""Facts about the metadata of clients and streams."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.agent_api.metadata import ClientInfo, ClientStatus, PortConflict, StreamMetadata
from relay_core.records import encode, parse, parse_or_none
from tests.unit.relay_core.agent_api.strategies import JSON, PORTS, TEXTS

CLASSES = (ClientInfo, ClientStatus, StreamMetadata)
FIELDS = ("client", "user", "prefetch", "conflicts")
NAMES = TEXTS.filter(str.isprintable)
CONFLICTS = st.builds(PortConflict, PORTS, NAMES, NAMES)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (ClientInfo("c1", "bob@laptop"), {"client": "c1", "user": "bob@laptop"}),
        (StreamMetadata("bob@laptop", prefetch=True), {"user": "bob@laptop", "prefetch": True}),
        (StreamMetadata("bob@laptop"), {"user": "bob@laptop"}),
        (StreamMetadata(is_release=True), {"is_release": True}),
        (StreamMetadata(), {}),
        (ClientStatus(), {}),
        (
            ClientStatus((PortConflict(5678, "a pid 1", "b pid 2"),)),
            {"conflicts": [{"port": 5678, "kept_by": "a pid 1", "refused": "b pid 2"}]},
        ),
    ],
)
def test_names_on_the_wire(value: ClientInfo | ClientStatus | StreamMetadata, encoded: dict[str, object]) -> None:
    """Agents and clients of other versions rely on these names."""
    assert encoded == encode(value)
    assert value == parse(type(value), encoded)


@given(
    st.builds(ClientInfo, TEXTS, NAMES)
    | st.builds(StreamMetadata, NAMES, st.booleans())
    | st.builds(ClientStatus, st.lists(CONFLICTS, max_size=3).map(tuple))
)
def test_round_trip(value: ClientInfo | ClientStatus | StreamMetadata) -> None:
    """Encoding and parsing give the same value."""
    assert value == parse(type(value), encode(value))


@given(st.sampled_from(CLASSES), JSON | st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_any_json_reads_as_something(
    kind: type[ClientInfo] | type[ClientStatus] | type[StreamMetadata], value: object
) -> None:
    """Any JSON of a peer can be parsed."""
    read = parse(kind, value)
    assert read == parse(kind, encode(read))


def test_a_conflict_without_a_port() -> None:
    """A conflict without a port is ignored."""
    assert ClientStatus() == parse(ClientStatus, {"conflicts": [{"kept_by": "a"}, None, 3]})


def test_texts_are_cleaned() -> None:
    """`clean` is applied to every text."""
    assert ClientInfo("C", "U") == parse(ClientInfo, {"client": "c", "user": "u"}, str.upper)
    assert StreamMetadata("U") == parse(StreamMetadata, {"user": "u"}, str.upper)
    conflict = {"port": 1, "kept_by": "a", "refused": "b"}
    assert PortConflict(1, "A", "B") == parse_or_none(PortConflict, conflict, str.upper)
