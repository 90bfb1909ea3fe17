"""Facts about the announcements of agents."""

import json
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from relay_core.agent_api import VERSION
from relay_core.agent_api.announcement import AgentId, AgentInfo, Attachment, State, TargetInfo
from relay_core.foreign import printable
from relay_core.records import encode, parse_or_none
from relay_core.tunnel.frames import decode_json, encode_json
from tests.unit.relay_core.agent_api.strategies import AGENTS, JSON, TARGETS

FIELDS = ("version", "id", "host", "cwd", "node_rank", "run", "targets", "forwards", "generation", "prefetch")
TARGET_FIELDS = ("port", "rank", "world", "pid", "script", "state", "detail", "since", "until", "attachment")
TARGET = {
    "port": 5681,
    "rank": 3,
    "world": 4,
    "pid": 4711,
    "script": "train.py",
    "state": "crashed",
    "detail": "ZeroDivisionError: division by zero",
    "since": 100.5,
    "until": 2000.0,
    "attachment": {
        "user": "bob@laptop",
        "since": 200.0,
        "is_stopped": True,
        "stopped_at": "train.py:41",
        "uncaught": "ZeroDivisionError: division by zero",
        "stopped_since": 250.0,
    },
}
"""The wire format: agents and clients of other versions rely on these names."""
ANNOUNCEMENT = {
    "version": 1,
    "id": "1a2b3c4d-5e6f",
    "host": "node-1",
    "cwd": "/job",
    "node_rank": 1,
    "run": "r1",
    "run_url": "https://ml.azure.com/runs/r1",
    "targets": [TARGET],
    "forwards": [6006],
    "generation": 2,
    "predecessors": ["6f5e4d3c"],
    "prefetch": True,
}
INFO = AgentInfo(
    AgentId("1a2b3c4d-5e6f"),
    host="node-1",
    cwd="/job",
    node_rank=1,
    run="r1",
    run_url="https://ml.azure.com/runs/r1",
    targets=(
        TargetInfo(
            5681,
            rank=3,
            world=4,
            pid=4711,
            script="train.py",
            state=State.CRASHED,
            detail="ZeroDivisionError: division by zero",
            since=100.5,
            until=2000.0,
            attachment=Attachment(
                *("bob@laptop", 200.0),
                is_stopped=True,
                stopped_at="train.py:41",
                uncaught="ZeroDivisionError: division by zero",
                stopped_since=250.0,
            ),
        ),
    ),
    forwards=(6006,),
    generation=2,
    predecessors=(AgentId("6f5e4d3c"),),
    prefetch=True,
)


@pytest.mark.parametrize(
    ("state", "attachment", "since"),
    [
        (State.RUNNING, None, 100.0),
        (State.RUNNING, Attachment("bob@laptop", 200.0, is_stopped=False), 100.0),
        (State.RUNNING, Attachment("bob@laptop", 200.0, is_stopped=True, stopped_since=250.0), 250.0),
        (State.RUNNING, Attachment("bob@laptop", 200.0, is_stopped=False, resumed_since=300.0), 300.0),
        (State.CRASHED, Attachment("bob@laptop", 200.0, is_stopped=True, stopped_since=250.0), 100.0),
    ],
)
def test_since_when_a_process_does_what_it_does(state: State, attachment: Attachment | None, since: float) -> None:
    """A process that a debugger has stopped or resumed does that since then; its state may have begun long before."""
    target = TargetInfo(5678, state=state, since=100.0, attachment=attachment)
    assert since == target.activity_since
    assert target == parse_or_none(TargetInfo, encode(target))
    later = replace(target, resumed_since=150.0)  # under an earlier debugger
    assert (since if state is State.CRASHED else max(since, 150.0)) == later.activity_since
    assert later == parse_or_none(TargetInfo, encode(later))


def test_jobs_of_which_a_rank_is_held() -> None:
    """A rank is held by a debugger, at a crash, or while it waits for a debugger; its job is known by its base port."""
    running = TargetInfo(5680, rank=2, state=State.RUNNING)
    assert frozenset() == AgentInfo(AgentId("a"), targets=(running, TargetInfo(5678))).held_jobs
    for held in (
        replace(running, attachment=Attachment("bob@laptop")),
        replace(running, state=State.WAITING),
        replace(running, state=State.CRASHED),
    ):
        agent = AgentInfo(AgentId("a"), targets=(held, replace(running, port=6002)))
        assert ({5678}, {5678, 6000}) == (agent.held_jobs, agent.jobs)


def test_a_full_announcement() -> None:
    """Every field has its name in the wire format; a target can be crashed and have an attachment."""
    assert ANNOUNCEMENT == encode(INFO)
    assert INFO == AgentInfo.parse(ANNOUNCEMENT)
    assert ("node-1/1a2b3c4d", "rank 3", INFO.targets[0]) == (INFO.name, INFO.targets[0].label, INFO.target(5681))


def test_an_agent_that_only_names_ports() -> None:
    """Other fields have their defaults; without a version, it is 0, which is lower than any."""
    info = AgentInfo.parse({"id": "a", "targets": [{"port": 5678}]})
    assert AgentInfo(AgentId("a"), targets=(TargetInfo(5678),), version=0) == info
    assert 0 < VERSION
    assert ("port 5678", None) == (info.targets[0].label, info.target(1))


def test_fields_of_a_later_version() -> None:
    """Unknown fields are ignored, and not passed on."""
    later = {**ANNOUNCEMENT, "version": 7, "gpus": 8, "targets": [{**TARGET, "gpu": 3}]}
    info = AgentInfo.parse(later)
    assert replace(INFO, version=7) == info
    assert {**ANNOUNCEMENT, "version": 7} == encode(info)


def test_of_two_targets_with_one_port_the_first_is_kept() -> None:
    """A port belongs to one process."""
    info = AgentInfo.parse({"targets": [{"port": 1, "pid": 1}, {"port": 1, "pid": 2}]})
    assert (TargetInfo(1, pid=1),) == info.targets


def test_the_id_by_which_a_client_knows_an_agent() -> None:
    """It takes precedence over the announced id, which may be invalid."""
    assert "b" == AgentInfo.parse({"id": "a"}, agent_id="b").id


def test_numbers_out_of_range() -> None:
    """Infinity and huge numbers, which Python's JSON decoder accepts, read as unknown."""
    target = parse_or_none(
        TargetInfo, json.loads('{"port": 1, "rank": 1e400, "pid": 1%s, "since": Infinity}' % ("0" * 400))
    )
    assert TargetInfo(1) == target
    assert TargetInfo(1) == parse_or_none(
        TargetInfo, json.loads('{"port": 1, "since": 1%s, "until": NaN}' % ("0" * 400))
    )


@given(AGENTS)
def test_round_trip(info: AgentInfo) -> None:
    """An announcement survives encoding and parsing with the tunnel's JSON functions."""
    assert info == AgentInfo.parse(decode_json(encode_json(encode(info), 1 << 20)))


@given(TARGETS)
def test_round_trip_of_a_target(target: TargetInfo) -> None:
    """A single target survives encoding and parsing."""
    assert target == parse_or_none(TargetInfo, encode(target))


@example({"host": " "})
@given(
    JSON
    | st.dictionaries(st.sampled_from(FIELDS), JSON)
    | st.fixed_dictionaries(
        {"targets": st.lists(st.dictionaries(st.sampled_from(TARGET_FIELDS), JSON), max_size=4), "forwards": JSON}
    )
)
def test_any_json_reads_as_something(value: object) -> None:
    """Any JSON can be parsed, and the texts are safe on a terminal."""
    read = AgentInfo.parse(value, clean=printable)
    for target in read.targets:
        assert 1 <= target.port <= 65535
        assert (target.script + target.detail).isprintable()
        assert target.attachment is None or target.attachment.user.isprintable()
    assert all(1 <= port <= 65535 for port in read.forwards)
    assert (read.name + read.cwd + read.run).isprintable()
    assert read == AgentInfo.parse(encode(read))
