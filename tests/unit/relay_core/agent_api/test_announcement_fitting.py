"""Facts about announcements that are too long for a frame."""

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from relay_core.agent_api.announcement import (
    MAX_ANNOUNCEMENT,
    AgentId,
    AgentInfo,
    Attachment,
    State,
    TargetInfo,
    fit,
)
from relay_core.agent_api.metadata import (
    MAX_CONFLICTS,
    MAX_NAME,
    ClientInfo,
    ClientStatus,
    PortConflict,
    StreamMetadata,
)
from relay_core.agent_api.usage import NodeUsage, ProcessUsage
from relay_core.records import encode, parse
from relay_core.tunnel.frames import encode_json
from relay_core.tunnel.limits import MAX_CONTROL_PAYLOAD, MAX_OPEN_METADATA
from tests.unit.relay_core.agent_api.strategies import AGENTS

RANK = TargetInfo(5678, world=1000, pid=123456, script="train.py", state=State.RUNNING, since=1_700_000_000.123)


def node(count: int, **fields: object) -> AgentInfo:
    targets = tuple(replace(RANK, port=5678 + n, rank=n, **fields) for n in range(count))
    return AgentInfo(AgentId("1a2b"), targets=targets)


def test_an_announcement_that_fits_is_not_changed():
    """Eight ranks are announced with all their fields."""
    assert node(8).encode() == fit(node(8).encode())


def test_a_thousand_ranks():
    """All are found by port and rank, with their script and state; what crashed or is held differs from the others."""
    info = node(1000)
    targets = list(info.targets)
    targets[7] = replace(targets[7], state=State.CRASHED, detail="ValueError: x" * 50)
    targets[8] = replace(targets[8], attachment=Attachment("bob@laptop", 200.0))
    data = encode_json(fit(replace(info, targets=tuple(targets)).encode()), MAX_ANNOUNCEMENT)
    found = AgentInfo.parse(json.loads(data))
    assert [(n, 5678 + n) for n in range(1000)] == [(target.rank, target.port) for target in found.targets]
    assert {"train.py"} == {target.script for target in found.targets}
    assert [7] == [target.rank for target in found.targets if target.state is State.CRASHED]
    assert ["bob@laptop"] == [target.attachment.user for target in found.targets if target.attachment]


def test_usage_of_a_thousand_ranks():
    """The usage of the node is announced, and that of its processes is left out."""
    usage = NodeUsage(0.0, 1.0, 64, 7, 8, processes=tuple(ProcessUsage(5678 + n, 0.123, 2**34) for n in range(1000)))
    found = AgentInfo.parse(fit(replace(node(1000), usage=usage).encode()))
    assert replace(usage, processes=()) == found.usage
    assert 1000 == len(found.targets)


def test_long_details_of_crashes():
    """96 crashed ranks keep their ports, states and the beginning of what they raised."""
    found = AgentInfo.parse(fit(node(96, state=State.CRASHED, detail="é" * 500).encode()))
    assert 96 == len(found.targets)
    assert {State.CRASHED} == {target.state for target in found.targets}


def test_thousands_of_ranks():
    """Of 5,000 targets, those with the lowest ports are announced, as many as there is room for."""
    info = AgentInfo(AgentId("1a2b"), targets=tuple(replace(RANK, port=10_001 + n, rank=n) for n in range(5000)))
    found = fit(info.encode())
    announced = AgentInfo.parse(found).targets
    assert 2000 < len(found["targets"]) == len(announced)
    assert [target.port for target in info.targets[: len(announced)]] == [target.port for target in announced]
    assert MAX_ANNOUNCEMENT - 100 < len(encode_json(found, MAX_ANNOUNCEMENT)) <= MAX_ANNOUNCEMENT


def test_many_forwards():
    """They do not take the room of targets."""
    found = fit(replace(node(3), forwards=tuple(range(1, 65536))).encode())
    assert 3 == len(found["targets"])


@given(AGENTS, st.integers(1500, 5000))
def test_any_announcement(info, limit):
    """It fits, in the same way each time."""
    assert len(encode_json(fit(info.encode(), limit), limit)) <= limit
    assert fit(info.encode(), limit) == fit(info.encode(), limit)


def test_long_user():
    """A user is cut to 64 printable characters by both sides."""
    user = "é\n" * 2000
    assert "é" * MAX_NAME == parse(ClientInfo, {"client": "c", "user": user}).user
    assert "é" * MAX_NAME == parse(StreamMetadata, {"user": user}).user
    assert encode_json(encode(StreamMetadata(user)), MAX_OPEN_METADATA)
    assert encode_json(encode(ClientInfo("c", user)), MAX_CONTROL_PAYLOAD)


def test_many_conflicts():
    """A client reports the first ones, with owners that fit into a frame."""
    status = ClientStatus(tuple(PortConflict(port, "é" * 200, "ü" * 200) for port in range(1, 1000)))
    assert MAX_CONFLICTS == len(encode(status)["conflicts"])
    assert encode_json(encode(status), MAX_CONTROL_PAYLOAD)
