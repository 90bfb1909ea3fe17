"""What the processes on a node know about their collective operations: the response to `ReadCollectives`.

The records come from torch's flight recorder, which numbers the operations of each process group, and from NCCL RAS.
The classes are named tuples because jobs use them too, and importing `dataclasses` would cost a job 10 ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from relay_core.agent_api.stacks import Frame, ProcessStacks
from relay_core.records import Clean, Wire, is_count

# What NCCL RAS reports about the communicators of a job, as part of the response to `ReadCollectives`.

MAX_COMMUNICATORS = 64
"""Maximum number of communicators in a response."""
MAX_REMARKS = 16
"""Maximum number of sentences about one communicator."""


class RasCommunicator(NamedTuple):
    """One communicator that RAS reports, such as one whose ranks have launched different numbers of operations."""

    name: str
    """Its hash, as NCCL prints it."""
    size: int = 0
    """Number of its ranks; 0 if unknown."""
    remarks: Annotated[tuple[str, ...], Wire(most=MAX_REMARKS)] = ()
    """What RAS reports about it, one sentence each."""


class RasStatus(NamedTuple):
    """The answer of NCCL RAS, which is the same in each process of a job."""

    version: str = ""
    """The version of NCCL."""
    communicators: Annotated[tuple[RasCommunicator, ...], Wire(most=MAX_COMMUNICATORS)] = ()
    """The communicators that RAS reports, such as those whose ranks have launched different numbers of operations."""
    error: str = ""
    """Why the answer of NCCL RAS could not be read, in one sentence."""


MAX_GROUPS = 64
"""Maximum number of process groups per process; groups with an incomplete operation come first. Jobs with tensor,
pipeline and expert parallelism have ten groups.
"""
MAX_OPERATIONS = 8
"""Maximum number of operations per group: the first incomplete ones and the most recent ones."""
MAX_RANKS = 4096
"""Maximum number of ranks per group: many times the number of ranks on one hybrid connection."""


def is_collective(frame: Frame) -> bool:
    """Return whether a frame is that of a function of `torch.distributed` which communicates with other ranks."""
    return frame.file.replace("\\", "/").endswith("torch/distributed/distributed_c10d.py")


class Operation(NamedTuple):
    """One collective operation that a process has entered."""

    number: int
    """Its number in the group, from 1; the same in all ranks that call the same operations in the same order."""
    name: str
    """The function of `torch.distributed`: `all_reduce`."""
    inputs: str = ""
    """Shapes and types of the input tensors: `[16] float32`."""
    age: Annotated[float | None, Wire(digits=3)] = None
    """Seconds since the process entered it."""
    called: str = ""
    """Where the user's own code has called it: `train.py:88 in step`; "" if unknown, and for completed operations."""


def _write_runs(ranks: tuple[int, ...]) -> list[list[int]]:
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


def _read_runs(value: Any, _clean: Clean) -> object:
    """Read runs up to the first invalid one."""
    ranks: list[int] = []
    for run in value if isinstance(value, list) else ():
        if not isinstance(run, list) or len(run) != 3 or not all(is_count(number) for number in run):
            break
        first, length, distance = run
        if not length or not distance or len(ranks) + length > MAX_RANKS:
            break
        ranks += range(first, first + length * distance, distance)
    return tuple(ranks)


class GroupRecord(NamedTuple):
    """One process group, as one of its members has recorded it."""

    name: str
    """The name of the group, which is the same in all members."""
    description: str = ""
    """As given to `new_group`; "default_pg" for the default group."""
    recorder: str = ""
    """The recorder that the data comes from: "nccl", or "other" for all other backends; each recorder numbers the
    operations independently. "" if neither has recorded an operation of this group."""
    ranks: Annotated[tuple[int, ...], Wire(read=_read_runs, write=_write_runs)] = ()
    """Global ranks of its members in the order of their ranks in the group; empty if unknown."""
    enqueued: int = 0
    """Number of the last operation that the process has entered; 0 if none."""
    completed: int = 0
    """Number of the last operation that is complete in the process."""
    operations: Annotated[tuple[Operation, ...], Wire(most=MAX_OPERATIONS)] = ()
    """The first incomplete operations and the most recent operations, as far as the recorder still has them."""
    longest_gap: Annotated[float, Wire(missing=0.0, digits=3)] = 0.0
    """The longest time in seconds between the starts of two successive operations, as far as they are recorded; a slow
    step takes this long. 0 if unknown."""


class ProcessCollectives(NamedTuple):
    """One process: its process groups, and what its main thread is doing."""

    rank: int | None = None
    """Its global rank in `torch.distributed`; None without a process group."""
    groups: Annotated[tuple[GroupRecord, ...], Wire(most=MAX_GROUPS)] = ()
    problem: str = ""
    """One sentence that explains why no groups, or only some of them, are known."""
    activity: str = ""
    """What the main thread is doing: "running Python", "running", "blocked" or "stopped" (by a debugger); "" if
    unknown."""
    stacks: ProcessStacks = ProcessStacks()
    """The stack of the main thread only."""


class Progress(NamedTuple):
    """The collective operations of a process."""

    begun: Mapping[str, int] = MappingProxyType({})
    """How many it has begun, by group; empty if it has no process group."""
