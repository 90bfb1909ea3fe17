"""Determines which collective operation in each process group is waiting, and for which ranks; sans-IO.

In each rank, torch numbers the operations of a group. A group is waiting for the first operation that any rank has
entered but not completed. The group's ranks fall into three categories:

    entered    ranks that have entered an operation with this or a higher number
    missing    ranks whose last operation has a lower number, and ranks that have ended
    unknown    ranks that do not answer, or that no longer have a record of the group

Later operations of a rank, which it has entered asynchronously, wait for this one. Ranks that have entered different
operations with the same number wait for each other forever: they call operations in different orders.

The numbers decide, not the `state` of the recorded operations: gloo's remain "scheduled" after the operation has
completed. torch's own analyser of the same records raised KeyError on them. A rank is called missing only because of
numbers that were read, or because it has ended: one that is unknown may be the one that everybody waits for, and to
name another one would send the user to the wrong node.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from relay_client.hang.reports import Job, RankReport
from relay_client.stacks import is_library
from relay_core.agent_api.collectives import GroupRecord, Operation, is_collective
from relay_core.agent_api.stacks import Frame, ThreadStack
from relay_core.grouping import by_key

# Finds ranks that wait in a call of torch which its recorders do not show, by their stacks; sans-IO.
#
# torch records a collective operation after its communicator exists, so ranks that wait in their first operation have
# no record of it. Operations in a CUDA graph are never recorded; their ranks wait for the device. Point-to-point
# operations have no place in the order of a group's operations.

DEVICE = ("torch/cuda/__init__.py", "torch/cuda/streams.py", "torch/accelerator/__init__.py")
"""Files of torch whose functions named `synchronize` wait for the device."""
POINT_TO_POINT = frozenset(
    {"send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list"}
)
"""Functions of `torch.distributed` that wait for one other rank."""
IN_A_CALL = frozenset({"blocked", "running"})
"""Words of `ProcessCollectives.activity` for a main thread that stays in one call."""


@dataclass(frozen=True)
class UnrecordedWait:
    """Ranks whose main thread is in the same call, at the same place."""

    call: str
    """The function of torch that the user's code has called."""
    place: str
    """Where it has: `train.py:88 in step`."""
    is_for_device: bool
    """Whether they wait for their device; otherwise, for other ranks."""
    ranks: tuple[int, ...]


def unrecorded_waits(ranks: Mapping[int, RankReport], recorded: Collection[int]) -> tuple[UnrecordedWait, ...]:
    """Return the waits of a job that are not recorded, in the order of their first ranks.

    Args:
        ranks: Everything that is known about the job, by global rank.
        recorded: The ranks of which the recorders show what they wait for, or where they are missing.
    """
    found: dict[tuple[str, str, bool], list[int]] = {}
    for rank, report in ranks.items():
        if rank in recorded or report.main is None or report.is_stopped:
            continue
        if report.activity in IN_A_CALL and (wait := _wait(report.main)) is not None:
            call, is_for_device = wait
            found.setdefault((call, report.place, is_for_device), []).append(rank)
    return tuple(UnrecordedWait(*key, tuple(waiting)) for key, waiting in found.items())


def may_hang(wait: UnrecordedWait, ranks: Mapping[int, RankReport]) -> bool:
    """Return whether a wait that lasts is a hang, because progress in between would show in the recorders."""
    if wait.is_for_device or wait.call in POINT_TO_POINT:
        return False
    return any(_shows_progress(ranks[rank]) for rank in wait.ranks)


def _shows_progress(report: RankReport) -> bool:
    found = report.collectives
    return found is not None and (found.rank is None or not found.problem)  # without a process group, nothing can pass


def _wait(main: ThreadStack) -> tuple[str, bool] | None:
    """Return the function of torch in which a thread waits, and whether it waits for the device."""
    for frame in _called_by_own_code(main.frames):
        if is_collective(frame):
            return frame.function, False
        if frame.function == "synchronize" and frame.file.replace("\\", "/").endswith(DEVICE):
            return frame.function, True
    return None


def _called_by_own_code(frames: Sequence[Frame]) -> list[Frame]:
    """Return the innermost frames that are in libraries, the outermost of them first."""
    return [*itertools.takewhile(is_library, reversed(frames))][::-1]


SAME_INPUTS = frozenset({"all_reduce", "broadcast", "reduce", "reduce_scatter", "reduce_scatter_tensor", "barrier"})
"""Operations whose input tensors have the same shape and type in all ranks; in other operations, they may differ."""
MIN_AGE = 1.0
"""Minimum age of a hang in seconds; in a healthy job, a collective usually waits less time for its last rank."""
MAX_PATIENCE = 10.0
"""Longest time in seconds to wait for an operation that all ranks have entered, and that may only be slow."""
MAX_USUAL = 60.0
"""Age in seconds from which such an operation counts as a hang in any job."""
USUAL_FACTOR = 2.0
"""How many times the longest gap between a group's operations such an operation may take; a step in a healthy job takes
about the same time each time."""
DEFAULT = "default_pg"
"""torch's description of the default group."""
UNDESCRIBED = "undefined"
"""torch's description of a group that was created without a description."""


@dataclass(frozen=True)
class GroupVerdict:
    """A group in which ranks are waiting for an operation."""

    name: str
    """For display: its description, or else torch's name."""
    members: tuple[int, ...]
    """Global ranks, in ascending order."""
    number: int
    """Number of the operation in the group."""
    entered: Mapping[int, Operation | None]
    """The call of each rank that has entered the operation; None if the rank's recorder no longer has the call."""
    waiting: tuple[int, ...]
    """The ranks that have entered the operation and not completed it."""
    missing: tuple[int, ...]
    unknown: tuple[int, ...]
    longest_gap: float = 0.0
    """The longest time in seconds between two operations of the group, as far as its members have recorded it."""
    ahead: Mapping[int, Operation | None] = field(default_factory=dict)
    """The calls of the ranks that have completed the operation, such as a broadcast, and wait in a later one."""

    @property
    def is_slow(self) -> bool:
        """Whether all ranks have entered the same operation, which may therefore still complete."""
        return not self.missing and not self.unknown and len(self.variants) < 2

    @property
    def is_usual(self) -> bool:
        """Whether the operation is slow, but not slower than usual in this group."""
        usual = min(USUAL_FACTOR * self.longest_gap, MAX_USUAL)
        return self.is_slow and self.age is not None and self.age < usual

    @property
    def patience(self) -> float:
        """Seconds after which the wait is certainly not brief; 0 if it is a hang already."""
        if self.age is None or not (self.is_slow or self.age < MIN_AGE):
            return 0.0
        rest = min(USUAL_FACTOR * self.longest_gap - self.age, MAX_PATIENCE) if self.is_slow else 0.0
        return max(rest, MIN_AGE)

    @property
    def variants(self) -> list[tuple[str, tuple[int, ...]]]:
        """The operations, each with the ranks that have called it; several operations indicate an error in the job."""
        entered = {rank: operation for rank, operation in self.entered.items() if operation is not None}
        found = by_key(
            ((one.name, one.inputs if one.name in SAME_INPUTS else ""), rank) for rank, one in entered.items()
        )
        by_size = sorted(found.values(), key=lambda ranks: (-len(ranks), ranks))
        firsts = [entered[ranks[0]] for ranks in by_size]
        return [(f"{one.name} {one.inputs}".rstrip(), tuple(ranks)) for one, ranks in zip(firsts, by_size, strict=True)]

    @property
    def age(self) -> float | None:
        """Seconds since the first of the waiting ranks entered the operation."""
        operations = (self.entered[rank] for rank in self.waiting)
        return max((one.age for one in operations if one is not None and one.age is not None), default=None)


@dataclass(frozen=True)
class _Group:
    """A group as its members know it."""

    name: str
    members: tuple[int, ...]
    records: Mapping[int, GroupRecord]
    """By rank, for the ranks that know the group; an empty one if no recorder has an operation of it."""
    absent: tuple[int, ...]
    """Ranks that have certainly not entered the group's next operation: they have ended, or have no process group."""


def judge(ranks: Mapping[int, RankReport]) -> list[GroupVerdict]:
    """Return the groups of a job in which ranks are waiting, starting with the longest wait.

    Args:
        ranks: Everything that is known about the job, by global rank.
    """
    verdicts = [verdict for group in _groups(ranks) if (verdict := _judge_group(group)) is not None]
    return sorted(verdicts, key=lambda verdict: -(verdict.age or 0.0))


def judge_completed(ranks: Mapping[int, RankReport]) -> list[GroupVerdict]:
    """Return the first operation of each group that is complete although ranks have called different ones.

    NCCL does not compare what ranks call: such an operation can complete, and has a wrong result. Only the most recent
    operations of each rank are known.
    """
    found = (_judge_completed(group) for group in _groups(ranks))
    return [verdict for verdict in found if verdict is not None]


def _judge_completed(group: _Group) -> GroupVerdict | None:
    completed = min((one.completed for one in group.records.values()), default=0)
    for number in sorted({operation.number for one in group.records.values() for operation in one.operations}):
        called = {rank: _operation(one, number) for rank, one in group.records.items()}
        verdict = GroupVerdict(group.name, group.members, number, called, waiting=(), missing=(), unknown=())
        if number <= completed and len(verdict.variants) > 1:
            return verdict
    return None


def positions(ranks: Mapping[int, RankReport]) -> dict[tuple[int, str, str], tuple[int, int]]:
    """Return how far each rank has progressed in each group; two such results show whether a job is making progress."""
    return {
        (rank, group.recorder, group.name): (group.enqueued, group.completed)
        for rank, report in ranks.items()
        if report.collectives is not None
        for group in report.collectives.groups
    }


def _judge_group(group: _Group) -> GroupVerdict | None:
    pending = [one.completed + 1 for one in group.records.values() if one.enqueued > one.completed]
    if not pending:
        return None
    number = min(pending)
    entered = {rank: _operation(one, number) for rank, one in group.records.items() if one.enqueued >= number}
    behind = {rank for rank, one in group.records.items() if one.enqueued < number}
    return GroupVerdict(
        group.name,
        group.members,
        number,
        entered,
        waiting=tuple(rank for rank in entered if group.records[rank].completed < number),
        missing=tuple(sorted(behind.union(group.absent))),
        unknown=tuple(rank for rank in group.members if rank not in group.records and rank not in group.absent),
        longest_gap=max(one.longest_gap for one in group.records.values()),
        ahead={
            rank: _operation(one, one.completed + 1)
            for rank, one in group.records.items()
            if one.enqueued > one.completed >= number
        },
    )


def _groups(ranks: Mapping[int, RankReport]) -> Iterator[_Group]:
    """Yield each group that a recorder has, with the records of its members."""
    records: dict[tuple[str, str, tuple[int, ...]], dict[int, GroupRecord]] = {}
    unused: dict[tuple[str, tuple[int, ...]], set[int]] = {}
    for rank, report in ranks.items():
        for record in report.collectives.groups if report.collectives is not None else ():
            if record.recorder:
                records.setdefault((record.recorder, record.name, record.ranks), {})[rank] = record
            else:
                unused.setdefault((record.name, record.ranks), set()).add(rank)
    for (_, name, known), found in records.items():
        members = tuple(sorted({*known, *found}))
        idle = unused.get((name, known), set()).difference(found)
        others = set(members).difference(found, idle)
        yield _Group(
            _display_name(name, found),
            members,
            {rank: found.get(rank, GroupRecord(name)) for rank in members if rank not in others},
            absent=tuple(sorted(rank for rank in others if _is_absent(ranks, rank))),
        )


def _operation(record: GroupRecord, number: int) -> Operation | None:
    return next((one for one in record.operations if one.number == number), None)


def _is_absent(ranks: Mapping[int, RankReport], rank: int) -> bool:
    """Whether a rank without a record of a group has certainly not entered the group's operations."""
    report = ranks.get(rank)
    if report is None:
        return False
    has_process_group = report.collectives is None or report.collectives.rank is not None
    return report.has_ended or not (report.silence or has_process_group)


def _display_name(name: str, found: Mapping[int, GroupRecord]) -> str:
    descriptions = (record.description for record in found.values())
    description = next((text for text in descriptions if text and text != UNDESCRIBED), "")
    return "default" if description == DEFAULT else description or name


@dataclass(frozen=True)
class JobVerdict:
    """A job, and its groups in which ranks are waiting."""

    job: Job
    groups: tuple[GroupVerdict, ...]
    unrecorded: tuple[UnrecordedWait, ...] = ()
    """The waits that no group shows."""
    mismatched: tuple[GroupVerdict, ...] = ()
    """Completed operations that differ between ranks."""

    @classmethod
    def of(cls, job: Job) -> JobVerdict:
        """Judge a job."""
        groups = tuple(judge(job.ranks))
        recorded = {rank for group in groups for rank in (*group.waiting, *group.missing, *group.unknown)}
        return cls(job, groups, unrecorded_waits(job.ranks, recorded), tuple(judge_completed(job.ranks)))

    @property
    def is_hanging(self) -> bool:
        """Whether ranks wait for other ranks; a wait that is not recorded may be for a rank that a debugger holds."""
        is_held = any(report.is_stopped and not report.has_ended for report in self.job.ranks.values())
        return any(not group.is_usual for group in self.groups) or (
            not is_held and any(may_hang(wait, self.job.ranks) for wait in self.unrecorded)
        )

    @property
    def patience(self) -> float:
        """Seconds after which the waits are certainly not brief, as in a healthy job; 0 if one is a hang already."""
        each = [group.patience for group in self.groups] or [MIN_AGE if self.unrecorded else 0.0]
        return max(each) if all(each) else 0.0

    def that_still_wait(self, before: JobVerdict) -> JobVerdict:
        """Return the verdict without the ranks that were not in the same wait in the verdict `before`."""
        same = {(group.name, group.members, group.number) for group in before.groups}
        groups = tuple(group for group in self.groups if (group.name, group.members, group.number) in same)
        then, now = positions(before.job.ranks), positions(self.job.ranks)
        moved = {key[0] for key in {*then, *now} if then.get(key) != now.get(key)}
        still = {(wait.call, wait.place): {*wait.ranks} - moved for wait in before.unrecorded}
        kept = (
            replace(wait, ranks=tuple(rank for rank in wait.ranks if rank in still.get((wait.call, wait.place), ())))
            for wait in self.unrecorded
        )
        return replace(self, groups=groups, unrecorded=tuple(wait for wait in kept if wait.ranks))
