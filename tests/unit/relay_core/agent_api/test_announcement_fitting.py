"""Facts about announcements that are too long for a frame."""

import base64
import hashlib
import json
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.agent_api.announcement import (
    MAX_ANNOUNCEMENT,
    AgentId,
    AgentInfo,
    Attachment,
    Ending,
    State,
    TargetInfo,
    fit,
)
from relay_core.agent_api.metadata import (
    MAX_CONFLICTS,
    ClientInfo,
    ClientStatus,
    PortConflict,
    StreamMetadata,
)
from relay_core.agent_api.usage import NodeUsage, ProcessUsage
from relay_core.foreign import MAX_NAME
from relay_core.records import encode, parse
from relay_core.tunnel.frames import encode_json
from relay_core.tunnel.limits import MAX_CONTROL_PAYLOAD, MAX_OPEN_METADATA
from tests.unit.relay_core.agent_api.strategies import AGENTS

RANK = TargetInfo(5678, world=1000, pid=123456, script="train.py", state=State.RUNNING, since=1_700_000_000.123)


BOB = Attachment("bob@laptop", 200.0)


def node(count: int) -> AgentInfo:
    return AgentInfo(AgentId("1a2b"), targets=tuple(replace(RANK, port=5678 + n, rank=n) for n in range(count)))


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


def read(fields: object) -> AgentInfo:
    """Return an announcement that has passed through a frame."""
    return AgentInfo.parse(json.loads(encode_json(fields, MAX_ANNOUNCEMENT)))


def test_a_short_announcement_is_not_compressed():
    """Eight ranks are announced as they are, which can be read in a trace."""
    assert (encode(node(8)), 0) == fit(node(8))


def test_a_thousand_ranks():
    """All are announced with all their fields, although each has an exception of its own."""
    info = node(1000)
    targets = tuple(
        replace(target, state=State.CRASHED, detail=f"ValueError: rank {target.rank} has no data", attachment=BOB)
        for target in info.targets
    )
    info = replace(info, targets=targets)
    fields, left_out = fit(info)
    assert (0, info) == (left_out, read(fields))


def test_usage_of_thousands_of_ranks():
    """That of the node is announced, and that of its processes is left out before any target is."""
    usage = NodeUsage(
        0.0, 1.0, 64, 7, 8, processes=tuple(ProcessUsage(5678 + n, n / 8, 2**34 + n) for n in range(2000))
    )
    fields, left_out = fit(replace(node(1500), usage=usage))
    found = read(fields)
    assert (0, 1500, replace(usage, processes=())) == (left_out, len(found.targets), found.usage)


def test_targets_without_room():
    """Those with the lowest ports are announced, as many as there is room for, and at most 2,000."""
    odd = [replace(RANK, port=1 + n, detail=hashlib.sha256(b"%d" % n).hexdigest()) for n in range(5000)]
    for targets, least, most in ((node(5000).targets, 2000, 2000), (tuple(odd), 400, 1000)):
        fields, left_out = fit(AgentInfo(AgentId("1a2b"), targets=targets))
        announced = read(fields).targets
        assert least <= len(announced) == 5000 - left_out <= most
        assert targets[: len(announced)] == announced
        assert 1 == fit(AgentInfo(AgentId("1a2b"), targets=targets[: len(announced) + 1]))[1]


def test_many_forwards_and_endings():
    """They do not take the room of targets; the latest endings stay."""
    endings = tuple(Ending(port, error=hashlib.sha256(b"%d" % port).hexdigest()) for port in range(1, 2001))
    info = replace(node(3), forwards=tuple(range(1, 65536)), endings=endings)
    found = read(fit(info)[0])
    assert (3, endings[-8:]) == (len(found.targets), found.endings)


@given(AGENTS, st.integers(1500, 5000))
def test_any_announcement(info, limit):
    """It fits, in the same way each time."""
    fields, left_out = fit(info, limit)
    assert len(encode_json(fields, limit)) <= limit
    assert (fields, left_out) == fit(info, limit)
    assert 0 <= left_out <= len(info.targets)


TOO_LONG = packed(b'{"id": "x", "cwd": "' + b" " * 10**6 + b'"}')


@pytest.mark.parametrize(
    "compressed",
    ["", "?", packed(b"no JSON"), packed(b"[1]"), packed(b"x" * 10)[:-8], packed(b"[" * 100_000), TOO_LONG],
)
def test_invalid_compression(compressed):
    """The announcement is empty; of what would need much memory, no more than the limit is decompressed."""
    assert AgentInfo(AgentId(""), version=0) == AgentInfo.parse({"id": "1a2b", "compressed": compressed})


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
