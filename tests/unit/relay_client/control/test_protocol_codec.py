"""Facts about the JSON of the control socket's messages."""

import contextlib
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_client.control.messages import REQUESTS
from relay_client.control.protocol import decode
from relay_client.control.state import ClientId, Port, Status
from relay_client.ranks.changes import Event
from relay_client.ranks.record import Connection, Node, Target, encode
from relay_client.ranks.view import StopReport
from relay_core.errors import ProtocolError

CLIENT = ClientId("1a2b3c4d", 12, "contoso.servicebus.windows.net", "myhc", "forward", 1.0, "/home/alice", "1.0")

texts = st.text(max_size=8)
numbers = st.integers(0, 2**40)
times = st.floats(0, 1e10)
stops = st.builds(StopReport, texts, times, st.none() | texts, st.none() | numbers, st.none() | texts)
targets = st.builds(
    Target,
    port=numbers,
    rank=st.none() | numbers,
    state=st.none() | texts,
    since=st.none() | times,
    local_ports=st.lists(numbers, max_size=2).map(tuple),
    attached_here=st.booleans(),
    stop=st.none() | stops,
)
nodes = st.builds(
    Node, texts, texts, texts, times, targets=st.lists(targets, max_size=3).map(tuple), round_trip=st.none() | times
)
statuses = st.builds(
    Status,
    st.just(CLIENT),
    times,
    st.lists(nodes, max_size=3).map(tuple),
    st.lists(st.builds(Port, numbers, numbers), max_size=2).map(tuple),
    st.lists(st.builds(Connection, numbers, numbers, texts, times, st.none() | texts), max_size=2).map(tuple),
)


@given(statuses)
def test_a_state_survives(status: Status) -> None:
    """What is decoded is what was encoded."""
    assert status == decode(Status, encode(status))


def test_none_is_left_out() -> None:
    """Unknown fields take no space, and are unknown again."""
    event = Event("free", 1.0, "rank 3 is free", rank=3)
    assert {"event": "free", "time": 1.0, "text": "rank 3 is free", "client": "", "rank": 3} == encode(event)
    assert event == decode(Event, encode(event))


def test_fields_of_later_versions_are_ignored() -> None:
    """A newer program may send more, and null for what it does not know; whole numbers may stand for times."""
    assert Event("log", 1.0, "x") == decode(
        Event, {"event": "log", "time": 1, "text": "x", "colour": "red", "rank": None}
    )


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([], "invalid Event: not a JSON object"),
        ({"event": "log", "time": 1.0}, "invalid Event: 'text' is missing"),
        ({"event": "log", "time": "now", "text": ""}, "invalid Event.time: unexpected type str"),
        ({"event": "log", "time": True, "text": ""}, "invalid Event.time: unexpected type bool"),
        ({"event": "log", "time": 1.0, "text": "", "rank": True}, "invalid Event.rank: unexpected type bool"),
        ({"event": "log", "time": 1.0, "text": "", "rank": 3.0}, "invalid Event.rank: unexpected type float"),
    ],
)
def test_wrong_values_are_refused(value: object, sentence: str) -> None:
    """The error names the field and the type that was found."""
    with pytest.raises(ProtocolError) as caught:
        decode(Event, value)
    assert sentence == caught.value.sentence


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | texts,
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["rank", "port", "ranks", "events", "lines", "wait"]), inner)
        ),
        max_leaves=6,
    )
)
def test_any_json_is_a_request_or_an_error(value: object) -> None:
    """No JSON value raises anything but the documented error."""
    for kind in REQUESTS:
        with contextlib.suppress(ProtocolError):
            assert isinstance(decode(kind, value), kind)


def test_a_tuple_is_checked_element_by_element() -> None:
    """An array with one wrong element is refused."""

    @dataclass(frozen=True)
    class Ports:
        ports: tuple[int, ...] | None = None

    assert Ports((1, 2)) == Ports(tuple(encode(Ports((1, 2)))["ports"]))
    status = {"client": encode(CLIENT), "time": 1.0, "nodes": [1]}
    with pytest.raises(ProtocolError, match="invalid Node: not a JSON object"):
        decode(Status, status)
    with pytest.raises(ProtocolError, match=r"invalid Status.nodes: unexpected type str"):
        decode(Status, {**status, "nodes": "none"})
