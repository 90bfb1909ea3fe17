"""Facts about the process groups in the response of an agent."""

import json

from hypothesis import given
from hypothesis import strategies as st

from relay_core.agent_api.collectives import (
    MAX_RANKS,
    GroupRecord,
    Operation,
    ProcessCollectives,
    RasCommunicator,
    RasStatus,
)
from relay_core.agent_api.stacks import Frame, ProcessStacks, ThreadStack
from relay_core.records import encode, parse
from tests.unit.relay_core.agent_api.strategies import COUNTS, JSON, SOME_TEXT, TEXTS

NUMBERS = st.integers(0, 2**40)
TIMES = st.integers(0, 10**6).map(lambda milliseconds: round(milliseconds / 1000, 3))
OPERATIONS = st.builds(Operation, NUMBERS, TEXTS, TEXTS, st.none() | TIMES, TEXTS)
RANKS = st.lists(st.integers(0, 5000), max_size=12).map(tuple)
GROUPS = st.builds(
    GroupRecord, TEXTS, TEXTS, TEXTS, RANKS, NUMBERS, NUMBERS, st.lists(OPERATIONS, max_size=4).map(tuple), TIMES
)
STACKS = st.builds(ProcessStacks, SOME_TEXT, st.just(()), TEXTS)
PROCESSES = st.builds(
    ProcessCollectives,
    COUNTS,
    st.lists(GROUPS, max_size=3).map(tuple),
    TEXTS,
    TEXTS,
    STACKS,
)
COMMUNICATORS = st.builds(RasCommunicator, TEXTS, NUMBERS, st.lists(SOME_TEXT, max_size=3).map(tuple))
STATUSES = st.builds(RasStatus, TEXTS, st.lists(COMMUNICATORS, max_size=3).map(tuple), TEXTS)
KINDS = (Operation, GroupRecord, ProcessCollectives, RasCommunicator, RasStatus)
FIELDS = (
    *("rank", "groups", "problem", "activity", "stacks", "error"),
    *("name", "description", "recorder", "ranks", "enqueued", "completed", "operations", "number", "inputs", "age"),
    *("called", "longest_gap", "version", "communicators", "size", "remarks"),
)


def test_names_on_the_wire() -> None:
    """The wire format of a process in a collective, and of what RAS reports."""
    operation = Operation(6, "all_reduce", "[16] float32", 12.5, "train.py:88 in step")
    group = GroupRecord("0", "default_pg", "other", (0, 1, 2, 3), 6, 5, (operation,), 3.25)
    main = ThreadStack("MainThread", 1, True, (Frame("/job/train.py", 88, "step"),))
    stacks = ProcessStacks("helper thread", (main,))
    process = ProcessCollectives(3, (group,), "", "blocked", stacks)
    ras = RasStatus("2.29.1", (RasCommunicator("ae94", 2, ("rank 1 is not responding",)),))
    wire = {
        "rank": 3,
        "groups": [
            {
                "name": "0",
                "description": "default_pg",
                "recorder": "other",
                "ranks": [[0, 4, 1]],
                "enqueued": 6,
                "completed": 5,
                "operations": [
                    {
                        "number": 6,
                        "name": "all_reduce",
                        "inputs": "[16] float32",
                        "age": 12.5,
                        "called": "train.py:88 in step",
                    }
                ],
                "longest_gap": 3.25,
            }
        ],
        "activity": "blocked",
        "stacks": encode(stacks),
    }
    status = {
        "version": "2.29.1",
        "communicators": [{"name": "ae94", "size": 2, "remarks": ["rank 1 is not responding"]}],
    }
    assert (wire, status) == (encode(process), encode(ras))
    assert (process, ras) == (parse(ProcessCollectives, wire), parse(RasStatus, status))


@given(PROCESSES | STATUSES)
def test_round_trip(report: ProcessCollectives | RasStatus) -> None:
    """What a process or RAS reports survives encoding and parsing, with the order of the ranks in a group."""
    assert report == parse(type(report), json.loads(json.dumps(encode(report))))


@given(st.sampled_from(KINDS), JSON | st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_any_json_reads_as_something(
    kind: type[Operation] | type[GroupRecord] | type[ProcessCollectives] | type[RasCommunicator] | type[RasStatus],
    value: object,
) -> None:
    """Any JSON of an agent or a job can be parsed."""
    read = parse(kind, value)
    assert encode(read) == encode(parse(kind, encode(read)))


def test_large_groups_are_short() -> None:
    """Ranks at equal distances, as those of tensor and data parallel groups, take a few bytes."""
    group = GroupRecord("dp", ranks=tuple(range(3, 32768, 8)))
    assert [[3, 4096, 8]] == encode(group)["ranks"]


def test_ranks_without_limit_are_cut() -> None:
    """A run that claims more ranks than a job can have is left out."""
    assert () == parse(GroupRecord, {"ranks": [[0, MAX_RANKS + 1, 1]]}).ranks
    assert (7,) == parse(GroupRecord, {"ranks": [[7, 1, 1], [0, 2**62, 1]]}).ranks
    assert (7,) == parse(GroupRecord, {"ranks": [[7, 1, 1], ["x", 1, 1], [8, 1, 1]]}).ranks


def test_texts_are_cleaned() -> None:
    """`clean` is applied to every text."""
    groups = [{"name": "c", "operations": [{"name": "d"}]}]
    process = parse(ProcessCollectives, {"problem": "b", "groups": groups}, str.upper)
    ras = parse(RasStatus, {"communicators": [{"name": "e", "remarks": ["f"]}]}, str.upper)
    assert ("B", "C", "D") == (
        process.problem,
        process.groups[0].name,
        process.groups[0].operations[0].name,
    )
    assert (RasCommunicator("E", 0, ("F",)),) == ras.communicators
