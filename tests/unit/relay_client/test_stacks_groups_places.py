"""Facts about what running processes are doing, in three words."""

from relay_client.stacks import places
from relay_core.agent_api.questions import NodeReplies, Reply
from relay_core.agent_api.stacks import Frame, ProcessStacks, ThreadStack
from relay_core.records import encode

OWN = Frame("/job/train.py", 52, "train")
TORCH = Frame("/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py", 2933, "all_reduce")


def process(port: int, *frames: Frame) -> Reply:
    main = ThreadStack("MainThread", 1, True, frames)
    return Reply(port, 0, encode(ProcessStacks("helper thread", (main,))))


def test_a_process_in_a_library_is_named_by_its_function() -> None:
    """A process is in a collective that it waits in, or running in its own code; without a stack it is left out."""
    inner = TORCH._replace(function="_wait")
    found = (process(1, OWN, TORCH), process(2, OWN), Reply(3, error="silent"), process(4, OWN, TORCH, inner))
    expected = {1: "in all_reduce", 2: "running (train.py:52)", 4: "in all_reduce"}
    assert expected == places(NodeReplies(found))
