"""Simulated ranks of a torch job, and what they report about the collective in which they wait."""

from relay_core.agent_api.collectives import GroupRecord, Operation, ProcessCollectives
from relay_core.agent_api.stacks import Frame, ProcessStacks, ThreadStack
from tests.support.network.fleet import Node, Process

__all__ = ["collectives", "node_of", "operations"]


def operations(number: int, *, age: float = 12.0) -> tuple[Operation, ...]:
    return (Operation(number, "all_reduce", "[16] float32", age),)


def collectives(port: int, rank: int, world: int, *, entered: int) -> ProcessCollectives:
    """Return what a rank reports that has entered so many operations, of which five are complete."""
    group = GroupRecord("0", "default_pg", "other", tuple(range(world)), entered, 5, operations(entered))
    library = Frame("/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", 3068, "all_reduce")
    frames = (Frame("/job/train.py", 90 if entered > 5 else 41, "step"), *([library] if entered > 5 else []))
    stacks = ProcessStacks("helper thread", (ThreadStack("MainThread", 1, True, frames),))
    return ProcessCollectives(rank, (group,), "", "blocked", stacks)


def node_of(base: int, ranks: range, world: int, *, behind: int | None = None) -> Node:
    """Return a node with these ranks of a job, all but one of which wait in an operation."""
    node = Node(*(Process(base + rank, 1, rank=rank, world=world, script="train.py") for rank in ranks))
    for rank in ranks:
        node.collectives.append(collectives(base + rank, rank, world, entered=5 if rank == behind else 6))
    return node
