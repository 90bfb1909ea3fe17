"""Facts about the verdict on process groups, from any history of operations."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_client.hang.reports import Job, RankReport
from relay_client.hang.verdict import MAX_PATIENCE, MIN_AGE, GroupVerdict, JobVerdict, judge, positions
from relay_core.agent_api.announcement import TargetInfo
from relay_core.agent_api.collectives import GroupRecord, Operation, ProcessCollectives

ALL_REDUCE = "all_reduce"


def operations(first: int, last: int, name: str = ALL_REDUCE, inputs: str = "[16] float32") -> tuple[Operation, ...]:
    """Return operations with these numbers, the last one of which was entered 12 s ago."""
    return tuple(Operation(number, name, inputs, 12.0 + last - number) for number in range(first, last + 1))


def group(
    enqueued: int, completed: int, ranks: tuple[int, ...] = (0, 1, 2, 3), *, name: str = "0", **fields: str
) -> GroupRecord:
    """Return a group in which a rank has entered and completed so many operations."""
    return GroupRecord(
        name,
        {"0": "default_pg"}.get(name, "undefined"),
        "other" if enqueued else "",
        ranks,
        enqueued,
        completed,
        operations(max(1, enqueued - 3), enqueued, **fields),
    )


def report(rank: int, *groups: GroupRecord) -> RankReport:
    """Return the report of a rank that answers."""
    answer = ProcessCollectives(rank, groups, "", "blocked")
    return RankReport(rank, TargetInfo(5678 + rank, rank=rank, world=4), answer)


def ranks(*reports: RankReport) -> dict[int, RankReport]:
    return {one.rank: one for one in reports}


def judge_one(*reports: RankReport) -> GroupVerdict:
    """Return the only verdict."""
    (verdict,) = judge(ranks(*reports))
    return verdict


def test_missing_rank() -> None:
    """The rank whose last operation has a lower number is missing."""
    waiting = [report(rank, group(6, 5)) for rank in (0, 1, 3)]
    verdict = judge_one(*waiting, report(2, group(5, 5)))
    assert ("default", 6, [0, 1, 3], (2,), (), 12.0) == (
        verdict.name,
        verdict.number,
        list(verdict.entered),
        verdict.missing,
        verdict.unknown,
        verdict.age,
    )
    assert [("all_reduce [16] float32", (0, 1, 3))] == verdict.variants


def test_asynchronous_operations() -> None:
    """The first operation that waits is named, not the last one that some rank has entered behind it."""
    verdict = judge_one(report(0, group(8, 5)), report(1, group(6, 5)), report(2, group(5, 5)), report(3, group(7, 5)))
    assert (6, (2,)) == (verdict.number, verdict.missing)


def test_operation_that_is_complete_in_some_ranks() -> None:
    """A rank that has completed the operation has entered it, and does not wait for it."""
    verdict = judge_one(*(report(rank, group(6, 5)) for rank in (1, 2, 3)), report(0, group(6, 6)))
    assert ([0, 1, 2, 3], (1, 2, 3), ()) == (sorted(verdict.entered), verdict.waiting, verdict.missing)


def test_nothing_waits() -> None:
    """A group in which every operation is complete has no verdict."""
    assert [] == judge(ranks(*(report(rank, group(5, 5)) for rank in range(4))))
    assert [] == judge({})


def test_other_operation_and_shape() -> None:
    """Different operations, or shapes of an operation that needs equal ones, are variants; most ranks first."""
    odd = group(6, 5, name="0", inputs="[17] float32")
    verdict = judge_one(*(report(rank, group(6, 5)) for rank in (0, 1, 3)), report(2, odd))
    assert [("all_reduce [16] float32", (0, 1, 3)), ("all_reduce [17] float32", (2,))] == verdict.variants
    uneven = [
        group(6, 5, (0, 1), name="0")._replace(operations=operations(6, 6, "all_gather", f"[{n}]")) for n in (1, 2)
    ]
    assert [("all_gather [1]", (0, 1))] == judge_one(report(0, uneven[0]), report(1, uneven[1])).variants


def test_rank_without_an_operation_of_the_group() -> None:
    """A member that has never used a group is missing in its first operation."""
    pair = (0, 1)
    verdict = judge_one(report(0, group(1, 0, pair, name="1")), report(1, group(0, 0, pair, name="1")))
    assert ("1", 1, (1,), pair) == (verdict.name, verdict.number, verdict.missing, verdict.members)


def test_two_groups_with_the_same_description() -> None:
    """Groups are distinguished by their names and ranks."""
    left, right = (group(2, 1, pair, name=name) for pair, name in (((0, 1), "1"), ((2, 3), "2")))
    left, right = left._replace(description="tensor"), right._replace(description="tensor")
    behind = right._replace(enqueued=1, completed=1)
    found = judge(ranks(report(0, left), report(1, left), report(2, right), report(3, behind)))
    assert {("tensor", (0, 1), ()), ("tensor", (2, 3), (3,))} == {(one.name, one.members, one.missing) for one in found}


def test_silent_and_dead_ranks() -> None:
    """A rank without an answer is unknown; one that has ended, or has no process group, is missing."""
    silent = RankReport(1, TargetInfo(5679, rank=1), silence="did not answer")
    dead = RankReport(2, silence="was killed by SIGKILL", has_ended=True)
    started = RankReport(3, TargetInfo(5681, rank=3), ProcessCollectives())
    verdict = judge_one(report(0, group(6, 5)), silent, dead, started)
    assert ((2, 3), (1,)) == (verdict.missing, verdict.unknown)


def test_rank_whose_recorder_cannot_be_read() -> None:
    """A rank that has a process group, and no record of it, may have entered the operation."""
    verdict = judge_one(report(0, group(6, 5, (0, 1))), report(1))
    assert ((), (1,)) == (verdict.missing, verdict.unknown)


def test_rank_whose_record_was_overwritten() -> None:
    """A rank that has groups, but no record of this one any more, is unknown."""
    verdict = judge_one(report(0, group(6, 5, (0, 1))), report(1, group(9, 9, (1, 3), name="7")))
    assert (1,) == verdict.unknown


def test_young_verdicts() -> None:
    """A rank that has waited for a moment does not hang yet; it does if it waits for the same operation later."""
    young = group(6, 5)._replace(operations=(Operation(6, ALL_REDUCE, age=0.2),))
    before = JobVerdict.of(Job(5678, ranks(report(0, young), report(1, group(5, 5)))))
    assert MIN_AGE == before.patience
    moved = JobVerdict.of(Job(5678, ranks(report(0, group(7, 6)), report(1, group(6, 6)))))
    assert 0 == moved.patience
    assert () == moved.that_still_wait(before).groups
    assert 1 == len(before.that_still_wait(before).groups)


@pytest.mark.parametrize(
    ("gap", "patience", "hangs"),
    [(0.0, MIN_AGE, True), (3.0, MIN_AGE, True), (8.0, 4.0, False), (40.0, MAX_PATIENCE, False)],
)
def test_operation_that_all_ranks_have_entered(gap: float, patience: float, hangs: bool) -> None:
    """It may only be slow, so it is looked at again; it is not a hang if as much time has passed between others."""
    entered = group(6, 5, (0, 1))._replace(longest_gap=gap)  # 12 s ago
    verdict = JobVerdict.of(Job(5678, ranks(report(0, entered), report(1, entered))))
    assert (patience, hangs) == (verdict.patience, verdict.is_hanging)


def test_hang_that_needs_no_second_look() -> None:
    """A rank that is missing, or in another operation, does not come later; however slow the job is."""
    slow = group(6, 5, (0, 1))._replace(longest_gap=40.0)
    odd = group(6, 5, (0, 1), inputs="[17] float32")
    for other in (group(5, 5, (0, 1)), odd):
        verdict = JobVerdict.of(Job(5678, ranks(report(0, slow), report(1, other))))
        assert (0, True) == (verdict.patience, verdict.is_hanging)


def test_completed_operation_that_differs() -> None:
    """Different shapes of an operation that needs equal ones are remarked if it is complete, and are not a hang."""
    odd = group(6, 6, (0, 1), inputs="[17] float32")
    well = JobVerdict.of(Job(5678, ranks(report(0, group(6, 6, (0, 1))), report(1, odd))))
    (verdict,) = well.mismatched
    assert (3, [("all_reduce [16] float32", (0,)), ("all_reduce [17] float32", (1,))]) == (
        verdict.number,
        verdict.variants,
    )
    assert not well.is_hanging
    ahead = group(60, 60, (0, 1), inputs="[17] float32")
    for other in (group(6, 6, (0, 1)), ahead, odd._replace(completed=2)):
        assert () == JobVerdict.of(Job(5678, ranks(report(0, group(6, 6, (0, 1))), report(1, other)))).mismatched


def test_positions() -> None:
    """The progress of a job is the numbers of each rank in each group."""
    assert {(0, "other", "0"): (6, 5), (0, "", "1"): (0, 0)} == positions(
        ranks(report(0, group(6, 5), group(0, 0, name="1")))
    )


@dataclass(frozen=True)
class History:
    """What the ranks of two groups have really done: numbers entered and completed by each member."""

    members: tuple[tuple[int, ...], ...]
    entered: tuple[dict[int, int], ...]
    completed: tuple[dict[int, int], ...]


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Return any history: an operation is complete in no rank before all members have entered it."""
    size = draw(st.integers(2, 8))
    members, entered, completed = [], [], []
    for _ in range(draw(st.integers(1, 3))):
        group = tuple(sorted(draw(st.sets(st.integers(0, size - 1), min_size=2))))
        numbers = {rank: draw(st.integers(1, 6)) for rank in group}
        members.append(group)
        entered.append(numbers)
        completed.append({rank: draw(st.integers(0, min(numbers.values()))) for rank in group})
    return History(tuple(members), tuple(entered), tuple(completed))


@given(histories(), st.integers(0, 2**8))
def test_whom_verdicts_name(history: History, mask: int) -> None:
    """Every rank that has not entered the operation is named as missing or unknown, and none that has entered it."""
    reports: dict[int, RankReport] = {}
    for rank in {rank for group in history.members for rank in group}:
        records = [group_of(index, history, rank) for index, members in enumerate(history.members) if rank in members]
        silent = bool(mask >> rank & 1)
        reports[rank] = RankReport(rank, silence="did not answer") if silent else report(rank, *records)
    answering = {rank for rank, one in reports.items() if not one.silence}
    found = {verdict.name: verdict for verdict in judge(reports)}
    for index, members in enumerate(history.members):
        entered, completed = history.entered[index], history.completed[index]
        waiting = {rank for rank in answering.intersection(members) if entered[rank] > completed[rank]}
        assert bool(waiting) == (f"g{index}" in found)
        if not waiting:
            continue
        verdict = found[f"g{index}"]
        assert verdict.number == min(completed[rank] + 1 for rank in waiting)
        has_entered = {rank for rank in members if entered[rank] >= verdict.number}
        assert set(verdict.missing) == answering.intersection(members) - has_entered
        assert set(verdict.entered) == answering & has_entered
        assert set(verdict.unknown) == set(members) - answering


def group_of(index: int, history: History, rank: int) -> GroupRecord:
    """Return the record that one member has of a group."""
    entered, completed = history.entered[index][rank], history.completed[index][rank]
    return group(entered, completed, history.members[index], name=f"g{index}")
