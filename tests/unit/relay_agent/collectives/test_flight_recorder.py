"""Facts about reading torch's flight recorder. The dumps have the form that torch 2.13 writes."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_agent.collectives.flight_recorder import MAX_ENTRIES, parse_dump, read_recorders
from relay_core.agent_api.collectives import MAX_GROUPS, MAX_OPERATIONS, GroupRecord, Operation
from relay_core.records import encode, parse
from tests.support.jobs.processes import run_job
from tests.unit.relay_core.agent_api.strategies import JSON

NOW = 1_800_000_000.0
RECORDED = Path(__file__).with_name("recorded")
"""What torch 2.11 and NCCL 2.28.9 wrote on an H100 whose two ranks hung: see tests/gpu/test_nccl.py."""


def entry(number: int, **fields: object) -> dict[str, object]:
    """Return an operation as torch records it for gloo."""
    return {
        "collective_seq_id": number,
        "input_dtypes": ["Float"],
        "input_sizes": [[16]],
        "is_p2p": False,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "profiling_name": "gloo:all_reduce",
        "record_id": number - 1,
        "retired": True,
        "state": "scheduled",
        "time_created_ns": int((NOW - 12) * 1e9),
    } | fields


def test_gloo_group() -> None:
    """A gloo operation is complete if it is retired, whatever its state is."""
    groups, is_whole = parse_dump({"entries": [entry(5), entry(6, retired=False)]}, "other", NOW)
    operation = Operation(5, "all_reduce", "[16] float32", 12.0)
    assert [GroupRecord("0", "default_pg", "other", (), 6, 5, (operation, operation._replace(number=6)))] == groups
    assert not is_whole


def test_nccl_group() -> None:
    """For NCCL, an operation is complete if its state is that; one that is retired without it has timed out."""
    entries = [
        entry(1, state="completed", profiling_name="nccl:all_reduce"),
        entry(2, state="started", profiling_name="nccl:_all_gather_base"),
        entry(3, state="scheduled", retired=False),
    ]
    (group,), is_whole = parse_dump({"entries": entries}, "nccl", NOW)
    assert (3, 1, "nccl") == (group.enqueued, group.completed, group.recorder)
    assert ["all_reduce", "all_gather_into_tensor"] == [operation.name for operation in group.operations[:2]]
    assert is_whole


@pytest.mark.parametrize(
    ("fields", "completed"),
    [
        ({}, 1),
        ({"profiling_name": "nccl:all_reduce_barrier", "time_created_ns": int((NOW - 0.5) * 1e9)}, 2),
        ({"retired": True}, 2),
        ({"retired": None}, 2),
    ],
)
def test_nccl_connects_inside_the_last_operation(fields: dict[str, object], completed: int) -> None:
    """An operation that seems complete is not if the watchdog has not retired it for a while."""
    first_of_its_kind = {"state": "completed", "profiling_name": "nccl:_all_gather_base", "retired": False}
    entries = [entry(1, state="completed"), entry(2, **first_of_its_kind | fields)]
    (group,), _ = parse_dump({"entries": entries}, "nccl", NOW)
    assert (2, completed) == (group.enqueued, group.completed)
    (later,), _ = parse_dump({"entries": [*entries, entry(3, state="completed")]}, "nccl", NOW)
    assert (3, 3) == (later.enqueued, later.completed)


def test_recorded_dumps_of_nccl() -> None:
    """Rank 0 waits in the sixth operation, which rank 1 has not entered."""
    first, second = (
        parse_dump(json.loads((RECORDED / f"nccl-{rank}.json").read_text()), "nccl", NOW) for rank in (0, 1)
    )
    assert ((6, 5), True) == ((first[0][0].enqueued, first[0][0].completed), first[1])
    assert ((5, 5), True) == ((second[0][0].enqueued, second[0][0].completed), second[1])
    operation = first[0][0].operations[-1]
    assert (6, "all_reduce", "[16] float32") == (operation.number, operation.name, operation.inputs)
    assert "default_pg" == first[0][0].description


def test_point_to_point_operations_are_left_out() -> None:
    """Operations between two ranks have numbers of their own, which are not those of collectives."""
    entries = [entry(1), entry(9, is_p2p=True, retired=False, profiling_name="nccl:send 0->1")]
    (group,), _ = parse_dump({"entries": entries}, "other", NOW)
    assert (1, 1) == (group.enqueued, group.completed)


def test_long_histories_are_cut() -> None:
    """The first incomplete operations and the last ones are reported."""
    entries = [entry(number, retired=number < 100) for number in range(1, 2001)]
    (group,), _ = parse_dump({"entries": entries}, "other", NOW)
    assert (2000, 99) == (group.enqueued, group.completed)
    assert [100, 101, 102, 1996, 1997, 1998, 1999, 2000] == [one.number for one in group.operations]


def test_longest_gap() -> None:
    """The longest time between two operations of a group is reported."""
    times = {1: 100.0, 2: 103.5, 3: 103.6, 5: 104.0}
    entries = [entry(number, time_created_ns=int(at * 1e9)) for number, at in times.items()]
    (group,), _ = parse_dump({"entries": entries}, "other", NOW)
    assert 3.5 == group.longest_gap
    assert 0 == parse_dump({"entries": entries[:1]}, "other", NOW)[0][0].longest_gap


def test_tensors() -> None:
    """Shapes and types are Python's; of many tensors, the first ones are described."""
    sizes, types = [[2, 3], [], [7], [8], [9]], ["BFloat16", "Long", "Half", "Bool", "Float"]
    described = entry(1, input_sizes=sizes, input_dtypes=types)
    (group,), _ = parse_dump({"entries": [described]}, "other", NOW)
    (operation,) = group.operations
    assert "[2, 3] bfloat16, [] int64, [7] float16, [8] bool, 1 more" == operation.inputs


ENTRIES = st.lists(
    st.builds(
        lambda fields, number: entry(number) | fields,
        st.dictionaries(st.sampled_from(sorted(entry(1))), JSON, max_size=4),
        st.integers(1, 40),
    ),
    max_size=20,
)


@given(JSON | st.fixed_dictionaries({"entries": ENTRIES}))
def test_any_dump_can_be_read(dump: object) -> None:
    """Whatever a version of torch writes is read, within the limits, and survives the wire."""
    groups, _ = parse_dump(dump, "other", NOW)
    for group in groups:
        assert len(group.operations) <= MAX_OPERATIONS
        assert group.completed <= group.enqueued
        assert group._replace(operations=()) == parse(GroupRecord, encode(group._replace(operations=())))


class Group:
    """A process group as Python code of torch holds it."""

    def __init__(self, *ranks: int) -> None:
        self.ranks = ranks

    def rank(self) -> int:
        return 2

    def size(self) -> int:
        return len(self.ranks)


def pretend_torch(monkeypatch: pytest.MonkeyPatch, groups: dict[str, Group], **readers: Any) -> None:
    """Put modules with torch's names and attributes in place, with these functions of its recorders."""
    world = SimpleNamespace(
        pg_names={group: name for name, group in groups.items()},
        pg_group_ranks={group: {rank: index for index, rank in enumerate(group.ranks)} for group in groups.values()},
        default_pg=next(iter(groups.values()), None),
    )
    bindings = SimpleNamespace(_distributed_c10d=SimpleNamespace(**readers))
    monkeypatch.setitem(sys.modules, "torch", cast("ModuleType", SimpleNamespace(__version__="2.13.0", _C=bindings)))
    c10d = cast("ModuleType", SimpleNamespace(_world=world))
    monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", c10d)


GROUPS = {"0": Group(0, 1, 2, 3), "2": Group(3, 2)}


def test_global_ranks_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups have their members' global ranks in the order of the group, also one without an operation."""
    dump = json.dumps({"entries": [entry(1)]})
    pretend_torch(monkeypatch, GROUPS, _dump_fr_trace_json=lambda: dump)
    found = read_recorders()
    assert (2, "") == (found.rank, found.problem)
    assert [("0", (0, 1, 2, 3), 1), ("2", (3, 2), 0)] == [
        (group.name, group.ranks, group.enqueued) for group in found.groups
    ]


def test_old_operations_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group without a record may have had operations, if the recorder has overwritten its first ones."""
    dump = json.dumps({"entries": [entry(2001)]})
    pretend_torch(monkeypatch, GROUPS, _dump_fr_trace_json=lambda: dump)
    assert ["0"] == [group.name for group in read_recorders().groups]


def test_both_recorders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations of NCCL and of another backend in one group are counted separately."""
    other = json.dumps({"entries": [entry(7)]})
    nccl = json.dumps({"entries": [entry(3, profiling_name="nccl:broadcast")]}).encode()
    pretend_torch(monkeypatch, GROUPS, _dump_fr_trace_json=lambda: other, _dump_nccl_trace_json=lambda: nccl)
    found = [(group.recorder, group.name, group.enqueued) for group in read_recorders().groups]
    assert {("other", "0", 7), ("nccl", "0", 3)} == set(found)


def test_old_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a recorder that can be read, the version that has one is named."""
    pretend_torch(monkeypatch, GROUPS)
    assert (
        "torch 2.13.0 has no flight recorder that can be read; use torch 2.8 or later (2.5 or later for NCCL)"
        == read_recorders().problem
    )


def test_no_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read before the job has made a process group."""
    pretend_torch(monkeypatch, {})
    found = read_recorders()
    assert (None, "torch.distributed has no process group") == (found.rank, found.problem)


def test_import_that_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """While another thread is importing torch, that is the reason why no group is known."""
    pretend_torch(monkeypatch, {})
    monkeypatch.setattr(sys.modules["torch"], "__spec__", SimpleNamespace(_initializing=True), raising=False)
    assert "torch is still being imported" == read_recorders().problem


def test_failing_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recorder that raises is a problem in one sentence."""

    def fail() -> str:
        raise RuntimeError("not compiled")

    pretend_torch(monkeypatch, GROUPS, _dump_fr_trace_json=fail)
    found = read_recorders()
    assert ("torch's flight recorder cannot be read: RuntimeError: not compiled", ()) == (found.problem, found.groups)


def test_large_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a recorder with very many operations, only NCCL's incomplete ones are read."""
    asked = []

    def nccl(*arguments: bool) -> str:
        asked.append(arguments)
        return json.dumps({"entries": [entry(3, retired=False)]})

    pretend_torch(monkeypatch, GROUPS, _dump_fr_trace_json=lambda: "{}", _dump_nccl_trace_json=nccl)
    monkeypatch.setenv("TORCH_NCCL_TRACE_BUFFER_SIZE", str(MAX_ENTRIES + 1))
    found = read_recorders()
    assert [(True, True)] == asked
    assert [("0", 3)] == [(group.name, group.enqueued) for group in found.groups]
    assert "torch's flight recorder keeps up to 20001 operations, which are too many to read" == found.problem


def test_many_groups_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of very many groups, those that wait are kept."""
    entries = [entry(1, record_id=n, process_group=[str(n), ""], retired=n != 99) for n in range(100)]
    dump = json.dumps({"entries": entries})
    pretend_torch(monkeypatch, GROUPS, _dump_fr_trace_json=lambda: dump)
    groups = read_recorders().groups
    assert (MAX_GROUPS, "99") == (len(groups), groups[0].name)


@pytest.mark.job
async def test_nothing_is_imported() -> None:
    """A job without torch is not made to import it, or anything else but this package."""
    code = """\
        import sys
        import relay_agent.collectives.flight_recorder as recorder
        before = set(sys.modules)
        print(recorder.read_recorders().problem)
        print(sorted(set(sys.modules) - before))
    """
    assert (0, ["torch is not imported", "[]"], "") == await run_job(code)
