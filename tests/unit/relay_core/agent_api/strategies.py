"""Hypothesis strategies for the contract between agent and client."""

from hypothesis import strategies as st

from relay_core.agent_api.announcement import AgentId, AgentInfo, Attachment, Ending, State, TargetInfo
from relay_core.agent_api.usage import NodeUsage

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
"""Values that Python's `json.loads` can return, including infinity and NaN."""
TEXTS = st.text(max_size=20)
SOME_TEXT = st.text(min_size=1, max_size=20)
PORTS = st.integers(1, 65535)
COUNTS = st.none() | st.integers(0, 2**40)
SECONDS = st.none() | st.floats(0, 1e10)
TARGETS = st.builds(
    TargetInfo,
    port=PORTS,
    rank=COUNTS,
    world=COUNTS,
    pid=COUNTS,
    script=TEXTS,
    cwd=TEXTS,
    state=st.sampled_from(State),
    detail=TEXTS,
    since=SECONDS,
    until=SECONDS,
    attachment=st.none() | st.builds(Attachment, SOME_TEXT, SECONDS),
)
ENDINGS = st.builds(
    Ending,
    port=PORTS,
    pid=COUNTS,
    status=st.none() | st.integers(0, 255),
    signal=st.none() | st.integers(0, 64),
    error=TEXTS,
    is_final=st.booleans(),
)
AGENTS = st.builds(
    AgentInfo,
    id=TEXTS.map(AgentId),
    host=SOME_TEXT,
    cwd=TEXTS,
    node_rank=COUNTS,
    run=TEXTS,
    targets=st.lists(TARGETS, max_size=4, unique_by=lambda target: target.port).map(tuple),
    forwards=st.frozensets(PORTS, max_size=4).map(lambda ports: tuple(sorted(ports))),
    usage=st.none()
    | st.builds(NodeUsage, st.just(1.0), st.just(0.5), st.just(4), st.integers(0, 9), st.integers(0, 9)),
    endings=st.none() | st.lists(ENDINGS, max_size=10).map(tuple),
    generation=st.integers(0, 1000),
    predecessors=st.lists(SOME_TEXT.map(AgentId), max_size=3).map(tuple),
    prefetch=st.booleans(),
    version=st.integers(0, 5),
)
