"""Facts about the announced usage of a node."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.agent_api.usage import AllocatorUsage, GpuShare, GpuUsage, NodeUsage, ProcessUsage
from relay_core.records import encode, parse_or_none

SHARES = st.integers(0, 1_000_000).map(lambda number: number / 1000)
BYTES = st.integers(0, 2**40)
ALLOCATORS = st.builds(AllocatorUsage, BYTES, BYTES, BYTES, st.integers(0, 99), st.integers(0, 99))
GPUS = st.lists(st.builds(GpuShare, st.integers(0, 99), BYTES, st.booleans()), max_size=2).map(tuple)
USAGES = st.builds(
    NodeUsage,
    time=st.integers(0, 10**10).map(float),
    cpu=SHARES,
    cores=st.integers(0, 1024),
    memory=BYTES,
    total=BYTES,
    gpus=st.lists(st.builds(GpuUsage, st.text(max_size=20), SHARES, BYTES, BYTES), max_size=4).map(tuple),
    processes=st.lists(
        st.builds(ProcessUsage, st.integers(1, 65535), SHARES, BYTES, st.none() | ALLOCATORS, GPUS), max_size=4
    ).map(tuple),
)


@given(USAGES)
def test_what_is_announced_is_read(usage: NodeUsage):
    """A client reads what the agent has sent as JSON."""
    assert usage == parse_or_none(NodeUsage, json.loads(json.dumps(encode(usage))))


@pytest.mark.parametrize("value", [None, 7, "x", []])
def test_no_usage(value: object):
    """An agent without a monitor announces none."""
    assert parse_or_none(NodeUsage, value) is None


def test_malformed_parts():
    """A process without a valid port and what is not a GPU are skipped, and other invalid values are 0."""
    processes = [7, [0, 1, 1], [5678, None, -1], [5679, 1, 1, 7], [5680, 1, 1, ["x", 2]]]
    value = {"cpu": "x", "gpus": [[], 7], "processes": processes, "later": 1}
    found = (
        *(ProcessUsage(5678, 0.0, 0), ProcessUsage(5679, 1.0, 1)),
        ProcessUsage(5680, 1.0, 1, AllocatorUsage(0, 2, 0, 0, 0)),
    )
    expected = NodeUsage(0.0, 0.0, 0, 0, 0, (), found)
    assert expected == parse_or_none(NodeUsage, value)


def test_usage_of_a_port():
    """A process is found by its logical port."""
    found = NodeUsage(0.0, 0.0, 0, 0, 0, processes=(ProcessUsage(5678, 0.5, 7),))
    assert ProcessUsage(5678, 0.5, 7) == found.of(5678)
    assert found.of(5679) is None
