"""Facts about the messages between a process and the node's agent."""

from hypothesis import given
from hypothesis import strategies as st

from relay_agent.node.protocol import TargetRecord, decode, encode
from relay_core import records
from relay_core.agent_api.announcement import TargetInfo

values = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5)


@given(st.dictionaries(st.text(), values))
def test_round_trip(message):
    """A message is one line, and comes back as it was."""
    line = encode(message)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert message == decode(line)


@given(st.binary())
def test_any_bytes(line):
    """Anything but a JSON object is decoded as an empty message."""
    assert isinstance(decode(line), dict)


def test_what_is_no_json():
    """A value that JSON does not support is sent as text: the stacks of a job may contain any object."""
    assert decode(encode({"a": {1}})) == {"a": "{1}"}


def test_what_a_process_registers_as_is_what_clients_see():
    """All fields but `launched` and `on_crash` are announced, the node's rank and run by the agent."""
    record: TargetRecord = {
        "port": 5681,
        "rank": 3,
        "world": 4,
        "node_rank": 1,
        "run": "r1",
        "launched": True,
        "on_crash": True,
        "pid": 44,
        "script": "train.py",
        "cwd": "/job",
        "state": "waiting",
        "detail": "train.py:5",
        "place": "train.py:7",
        "since": 100.0,
        "until": 700.0,
    }
    info = records.parse_or_none(TargetInfo, decode(encode(record)))
    assert info is not None
    assert record == {**records.encode(info), "node_rank": 1, "run": "r1", "launched": True, "on_crash": True}
    assert set(record) == TargetRecord.__optional_keys__
