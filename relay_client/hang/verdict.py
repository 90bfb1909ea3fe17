"""Which collective operation of each process group waits, and for whom; sans-IO.

torch numbers the operations of a group in each rank. The rule: the operation that a group waits for is the first one
that some rank has entered and not completed. Of the group's ranks

    those that have entered an operation with this or a higher number    have entered it
    those whose last operation has a lower number, or that have ended    are missing
    those that do not answer, or have no record of the group any more    are unknown

Later operations of a rank, which it has entered asynchronously, wait for this one. Ranks that have entered different
operations with the same number wait for each other forever: they call operations in a different order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from relay_client.hang.reports import Job, RankReport
from relay_core.agent_api.collectives import GroupRecord, Operation

__all__ = ["MIN_AGE", "GroupVerdict", "JobVerdict", "Position", "judge", "positions"]

SAME_INPUTS = frozenset({"all_reduce", "broadcast", "reduce", "reduce_scatter", "_reduce_scatter_base", "barrier"})
"""Operations whose input tensors have the same shape and type in all ranks; in others, they may differ."""
MIN_AGE = 1.0
"""Seconds; a collective of a job that runs well usually waits less long for its last rank."""
DEFAULT = "default_pg"
"""torch's description of the default group."""
UNDESCRIBED = "undefined"
"""torch's description of a group that was made without one."""


@dataclass(frozen=True)
class GroupVerdict:
    """A group in which ranks wait for an operation."""

    name: str
    """For display: its description, or else torch's name."""
    members: tuple[int, ...]
    """Global ranks, in ascending order."""
    number: int
    """Number of the operation in the group."""
    entered: Mapping[int, Operation | None]
    """The ranks that have entered it, and what each has called; None if its recorder no longer has it."""
    waiting: tuple[int, ...]
    """The ranks that have entered it and not completed it."""
    missing: tuple[int, ...]
    unknown: tuple[int, ...]

    @property
    def is_default(self) -> bool:
        """Whether this is the group of all ranks."""
        return self.name == "default"

    @property
    def variants(self) -> list[tuple[str, tuple[int, ...]]]:
        """The operations that ranks have called, each with these ranks; more than one is an error in the job."""
        found: dict[tuple[str, str], list[int]] = {}
        texts: dict[tuple[str, str], str] = {}
        for rank, operation in self.entered.items():
            if operation is not None:
                key = operation.name, operation.inputs if operation.name in SAME_INPUTS else ""
                found.setdefault(key, []).append(rank)
                texts.setdefault(key, f"{operation.name} {operation.inputs}".rstrip())
        by_size = sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[1]))
        return [(texts[key], tuple(ranks)) for key, ranks in by_size]

    @property
    def age(self) -> float | None:
        """Seconds since the first rank that waits has entered it."""
        operations = (self.entered[rank] for rank in self.waiting)
        return max((one.age for one in operations if one is not None and one.age is not None), default=None)


@dataclass(frozen=True)
class Position:
    """How far one rank is in a group."""

    enqueued: int
    completed: int
    operations: Mapping[int, Operation]


@dataclass(frozen=True)
class _Group:
    """A group as its members know it."""

    name: str
    members: tuple[int, ...]
    positions: Mapping[int, Position]
    """Of the ranks that have a record of it."""
    absent: tuple[int, ...]
    """The ranks that have certainly not entered its next operation: they have ended, or have no process group."""


def judge(ranks: Mapping[int, RankReport]) -> list[GroupVerdict]:
    """Return the groups of a job in which ranks wait, the one that has waited longest first.

    Args:
        ranks: All that is known of the job, by global rank.
    """
    verdicts = [verdict for group in _groups(ranks) if (verdict := _judge_group(group)) is not None]
    return sorted(verdicts, key=lambda verdict: -(verdict.age or 0.0))


def positions(ranks: Mapping[int, RankReport]) -> dict[tuple[int, str, str], tuple[int, int]]:
    """Return how far each rank is in each group, to determine whether a job makes progress between two checks."""
    return {
        (rank, group.recorder, group.name): (group.enqueued, group.completed)
        for rank, report in ranks.items()
        if report.collectives is not None
        for group in report.collectives.groups
    }


def _judge_group(group: _Group) -> GroupVerdict | None:
    pending = [one.completed + 1 for one in group.positions.values() if one.enqueued > one.completed]
    if not pending:
        return None
    number = min(pending)
    entered = {rank: one.operations.get(number) for rank, one in group.positions.items() if one.enqueued >= number}
    behind = {rank for rank, one in group.positions.items() if one.enqueued < number}
    return GroupVerdict(
        group.name,
        group.members,
        number,
        entered,
        waiting=tuple(rank for rank in entered if group.positions[rank].completed < number),
        missing=tuple(sorted(behind.union(group.absent))),
        unknown=tuple(rank for rank in group.members if rank not in group.positions and rank not in group.absent),
    )


def _groups(ranks: Mapping[int, RankReport]) -> Iterator[_Group]:
    """Yield each group that a recorder has, with the positions of its members."""
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
            {rank: _position(found.get(rank)) for rank in members if rank not in others},
            absent=tuple(sorted(rank for rank in others if _is_absent(ranks, rank))),
        )


def _position(record: GroupRecord | None) -> Position:
    if record is None:
        return Position(0, 0, {})
    return Position(record.enqueued, record.completed, {one.number: one for one in record.operations})


def _is_absent(ranks: Mapping[int, RankReport], rank: int) -> bool:
    """Whether a rank without a record of a group has certainly not entered its operations."""
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
    """A job, and its groups in which ranks wait."""

    job: Job
    groups: tuple[GroupVerdict, ...]

    @classmethod
    def of(cls, job: Job) -> JobVerdict:
        """Judge a job."""
        return cls(job, tuple(judge(job.ranks)))

    @property
    def is_young(self) -> bool:
        """Whether ranks wait, but none for `MIN_AGE`: in a job that runs well, some rank always does."""
        ages = [group.age for group in self.groups]
        return bool(ages) and all(age is not None and age < MIN_AGE for age in ages)

    def that_still_wait(self, before: JobVerdict) -> JobVerdict:
        """Return the verdict without the groups that did not wait for the same operation before."""
        same = {(group.name, group.members, group.number) for group in before.groups}
        groups = tuple(group for group in self.groups if (group.name, group.members, group.number) in same)
        return JobVerdict(self.job, groups)
