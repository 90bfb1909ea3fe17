"""Facts about reading what agents say about themselves."""

from hypothesis import given
from hypothesis import strategies as st

from relay_client.agents.announcement import AgentInfo, State, TargetInfo

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ("agent", "host", "cwd", "node_rank", "run", "targets", "forwards")
TARGET_FIELDS = ("port", "rank", "world", "pid", "script", "state", "detail", "since", "until", "holder", "held_since")


def test_a_full_announcement() -> None:
    """Every field is read."""
    target = {
        "port": 5681,
        "rank": 3,
        "world": 4,
        "pid": 4711,
        "script": "train.py",
        "state": "crashed",
        "detail": "ZeroDivisionError: division by zero",
        "since": 100.5,
        "until": 2000,
        "holder": "bob@laptop",
        "held_since": 200,
    }
    info = AgentInfo.parse(
        {"host": "node-1", "cwd": "/job", "node_rank": 1, "run": "r1", "targets": [target], "forwards": [6006]},
        agent_id="1a2b3c4d-5e6f",
    )
    read = TargetInfo(5681, 3, 4, 4711, "train.py", State.CRASHED, target["detail"], 100.5, 2000.0, "bob@laptop", 200.0)
    assert AgentInfo("1a2b3c4d-5e6f", "node-1", "/job", 1, "r1", (read,), (6006,)) == info
    assert ("node-1/1a2b3c4d", "rank 3", read) == (info.name, read.label, info.target(5681))


def test_an_agent_that_only_names_ports() -> None:
    """What `relay-agent serve` says is enough."""
    info = AgentInfo.parse({"agent": "a", "targets": [{"port": 5678}]}, agent_id="a")
    assert (TargetInfo(5678),) == info.targets
    assert ("port 5678", State.UNKNOWN, None) == (info.targets[0].label, info.targets[0].state, info.target(1))


def test_of_two_targets_with_one_port_the_first_counts() -> None:
    """A port leads to one process."""
    info = AgentInfo.parse({"targets": [{"port": 1, "pid": 1}, {"port": 1, "pid": 2}]}, agent_id="a")
    assert (TargetInfo(1, pid=1),) == info.targets


@given(
    st.dictionaries(st.sampled_from(FIELDS), JSON)
    | st.fixed_dictionaries(
        {"targets": st.lists(st.dictionaries(st.sampled_from(TARGET_FIELDS), JSON), max_size=4), "forwards": JSON}
    )
)
def test_any_json_reads_as_something(info: dict[str, object]) -> None:
    """No announcement makes reading fail, and what is read is harmless."""
    read = AgentInfo.parse(info, agent_id="a")
    for target in read.targets:
        assert 1 <= target.port <= 65535
        assert (target.script + target.detail + target.holder).isprintable()
    assert all(1 <= port <= 65535 for port in read.forwards)
    assert (read.name + read.cwd + read.run).isprintable()
