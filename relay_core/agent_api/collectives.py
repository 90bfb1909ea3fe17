"""What the processes on a node know about their collective operations: the response to the request `collectives`.

The records come from torch's flight recorder, which numbers the operations of each process group, and from NCCL RAS.
The classes are named tuples because jobs use them too, and importing `dataclasses` would cost a job 10 ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from relay_core.agent_api.ras import RasStatus
from relay_core.agent_api.stacks import ProcessStacks
from relay_core.agent_api.values import Clean, as_is, count, items, mapping, objects, seconds, text, without_missing

__all__ = [
    "MAX_GROUPS",
    "MAX_OPERATIONS",
    "MAX_PROCESSES",
    "MAX_RANKS",
    "GroupRecord",
    "NodeCollectives",
    "Operation",
    "ProcessCollectives",
]

MAX_GROUPS = 64
"""Maximum number of process groups per process; groups with an incomplete operation come first. Jobs with tensor,
pipeline and expert parallelism have ten groups.
"""
MAX_OPERATIONS = 8
"""Maximum number of operations per group: the first incomplete ones and the most recent ones."""
MAX_RANKS = 4096
"""Maximum number of ranks per group: many times the number of ranks on one hybrid connection."""
MAX_PROCESSES = 256
"""Maximum number of processes per node."""


class Operation(NamedTuple):
    """One collective operation that a process has entered."""

    number: int
    """Its number in the group, from 1; the same in all ranks that call the same operations in the same order."""
    name: str
    """As torch names it, without the backend: `all_reduce`."""
    inputs: str = ""
    """Shapes and types of the input tensors: `[16] float32`."""
    outputs: str = ""
    age: float | None = None
    """Seconds since the process entered it."""

    def encode(self) -> dict[str, object]:
        """Return one element of `operations`."""
        fields: dict[str, object] = {
            "number": self.number,
            "name": self.name,
            "inputs": self.inputs,
            "outputs": self.outputs,
        }
        return fields if self.age is None else fields | {"age": round(self.age, 3)}

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> Operation:
        """Read one element of `operations`."""
        fields = mapping(value)
        return cls(
            count(fields.get("number")) or 0,
            text(fields.get("name"), clean),
            text(fields.get("inputs"), clean),
            text(fields.get("outputs"), clean),
            seconds(fields.get("age")),
        )


class GroupRecord(NamedTuple):
    """One process group, as one of its members has recorded it."""

    name: str
    """The name of the group, which is the same in all members."""
    description: str = ""
    """As given to `new_group`; "default_pg" for the default group."""
    recorder: str = ""
    """The recorder that the data comes from: "nccl", or "other" for all other backends; each recorder numbers the
    operations independently. "" if neither has recorded an operation of this group."""
    ranks: tuple[int, ...] = ()
    """Global ranks of its members in the order of their ranks in the group; empty if unknown."""
    enqueued: int = 0
    """Number of the last operation that the process has entered; 0 if none."""
    completed: int = 0
    """Number of the last operation that is complete in the process."""
    operations: tuple[Operation, ...] = ()
    """The first incomplete operations and the most recent operations, as far as the recorder still has them."""

    def encode(self) -> dict[str, object]:
        """Return one element of `groups`."""
        return {
            "name": self.name,
            "description": self.description,
            "recorder": self.recorder,
            "ranks": _encode_runs(self.ranks),
            "enqueued": self.enqueued,
            "completed": self.completed,
            "operations": [operation.encode() for operation in self.operations],
        }

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> GroupRecord:
        """Read one element of `groups`."""
        fields = mapping(value)
        return cls(
            name=text(fields.get("name"), clean),
            description=text(fields.get("description"), clean),
            recorder=text(fields.get("recorder"), clean),
            ranks=_parse_runs(fields.get("ranks")),
            enqueued=count(fields.get("enqueued")) or 0,
            completed=count(fields.get("completed")) or 0,
            operations=tuple(Operation.parse(one, clean) for one in objects(fields.get("operations"))[:MAX_OPERATIONS]),
        )


def _encode_runs(ranks: tuple[int, ...]) -> list[list[int]]:
    """Return the ranks as runs `[first, number, distance]` of equally spaced ranks, which keeps large groups short."""
    runs: list[list[int]] = []
    for rank in ranks[:MAX_RANKS]:
        if runs and runs[-1][1] == 1 and rank > runs[-1][0]:
            runs[-1] = [runs[-1][0], 2, rank - runs[-1][0]]
        elif runs and runs[-1][1] > 1 and rank == runs[-1][0] + runs[-1][1] * runs[-1][2]:
            runs[-1][1] += 1
        else:
            runs.append([rank, 1, 1])
    return runs


def _parse_runs(value: object) -> tuple[int, ...]:
    """Read runs up to the first invalid one."""
    ranks: list[int] = []
    for element in items(value):
        numbers = [count(number) for number in items(element)]
        if len(numbers) != 3:
            break
        first, length, distance = numbers
        if first is None or not length or not distance or len(ranks) + length > MAX_RANKS:
            break
        ranks += range(first, first + length * distance, distance)
    return tuple(ranks)


class ProcessCollectives(NamedTuple):
    """One process: its process groups, and what its main thread is doing."""

    port: int | None = None
    """The logical port of the process."""
    torch: str = ""
    """Version of torch; "" if the process has not imported it."""
    rank: int | None = None
    """Its global rank in `torch.distributed`; None without a process group."""
    world: int | None = None
    """Number of ranks in the default group."""
    groups: tuple[GroupRecord, ...] = ()
    problem: str = ""
    """One sentence that explains why no groups, or only some of them, are known."""
    activity: str = ""
    """What the main thread is doing: "running Python", "running", "blocked" or "stopped" (by a debugger); "" if
    unknown."""
    stacks: ProcessStacks = ProcessStacks()
    """The stack of the main thread only; `stacks.rank` is the launcher's rank."""
    error: str = ""
    """Why the process has not answered, as the end of a sentence: "did not answer within 1.5 s"."""

    def encode(self) -> dict[str, object]:
        """Return one element of `processes`."""
        fields: dict[str, object] = {
            "port": self.port,
            "torch": self.torch,
            "rank": self.rank,
            "world": self.world,
            "groups": [group.encode() for group in self.groups],
            "problem": self.problem or None,
            "activity": self.activity or None,
            "stacks": self.stacks.encode(),
            "error": self.error or None,
        }
        return without_missing(fields)

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> ProcessCollectives:
        """Read one element of `processes`."""
        fields = mapping(value)
        return cls(
            port=count(fields.get("port")),
            torch=text(fields.get("torch"), clean),
            rank=count(fields.get("rank")),
            world=count(fields.get("world")),
            groups=tuple(GroupRecord.parse(group, clean) for group in objects(fields.get("groups"))[:MAX_GROUPS]),
            problem=text(fields.get("problem"), clean),
            activity=text(fields.get("activity"), clean),
            stacks=ProcessStacks.parse(fields.get("stacks"), clean),
            error=text(fields.get("error"), clean),
        )


class NodeCollectives(NamedTuple):
    """All processes on a node: the response to `collectives`."""

    processes: tuple[ProcessCollectives, ...] = ()
    ras: RasStatus | None = None
    """What NCCL RAS reports on this node; None if nothing listens on its port."""

    def encode(self) -> dict[str, object]:
        """Return the response."""
        fields: dict[str, object] = {"processes": [process.encode() for process in self.processes]}
        return fields if self.ras is None else fields | {"ras": self.ras.encode()}

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> NodeCollectives:
        """Read the response."""
        fields = mapping(value)
        found = objects(fields.get("processes"))
        ras = fields.get("ras")
        return cls(
            tuple(ProcessCollectives.parse(process, clean) for process in found[:MAX_PROCESSES]),
            RasStatus.parse(ras, clean) if isinstance(ras, Mapping) else None,
        )
