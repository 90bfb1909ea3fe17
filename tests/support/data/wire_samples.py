"""One value of each record of the agent's API, with every field set, and one with none that can be left out."""

from relay_core.agent_api.announcement import AgentId, AgentInfo, Attachment, Ending, State, TargetInfo
from relay_core.agent_api.collectives import (
    GroupRecord,
    Operation,
    ProcessCollectives,
    RasCommunicator,
    RasStatus,
)
from relay_core.agent_api.evaluation import Difference, Evaluate, Leaf, Selection, Value
from relay_core.agent_api.event_files import EventData, EventFile, EventFiles
from relay_core.agent_api.members import Member
from relay_core.agent_api.metadata import ClientInfo, ClientStatus, PortConflict, StreamMetadata
from relay_core.agent_api.push import Phase, Push, Pushed
from relay_core.agent_api.push import State as PushState
from relay_core.agent_api.questions import NodeReplies, Reply
from relay_core.agent_api.requests import Failure, FileDigest, Ready
from relay_core.agent_api.stacks import Frame, ProcessStacks, ThreadStack
from relay_core.agent_api.usage import AllocatorUsage, GpuUsage, NodeUsage, ProcessUsage

__all__ = ["SAMPLES"]

STACKS = ProcessStacks(
    "py-spy", (ThreadStack("MainThread", 7, main=True, frames=(Frame("a.py", 1, "f", {"x": "1"}),)),), "no"
)
RAS = RasStatus("2.29.1", (RasCommunicator("0x1", 4, ("rank 2 is behind",)),), "incomplete")
GROUP = GroupRecord("0", "default_pg", "nccl", (0, 2, 4, 7), 9, 8, (Operation(9, "all_reduce", "[16] float32", 1.5),))
BOB = Attachment("bob@laptop", 1000.5, is_stopped=True, stopped_at="train.py:41", stopped_since=1001.0)
TARGET = TargetInfo(
    *(5680, 2, 4, 44, "train.py", "/job", State.CRASHED, "ValueError: no", 900.0, 2700.0), attachment=BOB, pushes=3
)
USAGE = NodeUsage(
    *(1000.5, 3.125, 8, 2**33, 2**36),
    gpus=(GpuUsage("H100", 0.871, 2**33, 2**36),),
    processes=(ProcessUsage(5680, 1.234, 2**32, AllocatorUsage(6, 8, 7, 2, 1)), ProcessUsage(5681, 0.5, 2**20)),
)
MEMBERS = (Member(5680, 2), Member(5999))
SAMPLES: dict[str, object] = {
    "announcement": AgentInfo(
        AgentId("1a2b"),
        host="node-1",
        cwd="/job",
        node_rank=1,
        run="brave_sun_7",
        run_url="https://ml.azure.com/runs/brave_sun_7",
        targets=(TARGET, TargetInfo(5681)),
        forwards=(6006, 8888),
        usage=USAGE,
        endings=(Ending(5682, 45, 1, None, "KeyError: 'x'"), Ending(5683, signal=9, is_final=False)),
        generation=3,
        predecessors=(AgentId("9f8e"),),
        prefetch=True,
    ),
    "empty announcement": AgentInfo(AgentId("1a2b")),
    "stacks": STACKS,
    "no stacks": ProcessStacks(),
    "replies": NodeReplies(
        (
            Reply(5680, 2, {"x": [1]}, pid=44),
            Reply(5681, error="no answer within 5 s", is_silent=True, stacks={"how": "py-spy"}),
        ),
        {"version": "2.29.1"},
    ),
    "collectives": ProcessCollectives(2, (GROUP,), "some are missing", "blocked", STACKS),
    "few collectives": ProcessCollectives(),
    "ras": RAS,
    "client": ClientInfo("c1", "bob@laptop"),
    "stream": StreamMetadata("bob@laptop", prefetch=True),
    "conflicts": ClientStatus((PortConflict(5680, "node-0 pid 12", "node-1 pid 13"),)),
    "evaluate": Evaluate("model.layers[3]", Selection(3, 4, (0, 16)), ranks="0,3-5", seconds=7.5, ports="5678-5680"),
    "simple evaluate": Evaluate("x"),
    "value": Value(
        text="tensor(1)",
        place="step train.py:41",
        leaves=2,
        digest="1a2b3c4d5e6f",
        parts=("1a2b3c", "4d5e6f"),
        leaf=Leaf("weight", "[2, 3] float32", 6, ("1.0", "2.0")),
        difference=Difference("weight", "[2, 3] float32", 4, "1.0", "2.0", "ended", "6f5e"),
    ),
    "no value": Value(error="NameError: x"),
    "push": Push(
        *("p1", Phase.HOLD, "/job/train.py", ("/job/a.py", "a.py"), "x = 1\n", "step"),
        ranks="0,3",
        seconds=7.5,
        again=True,
        nested=True,
        targets={"default_pg": 43},
    ),
    "pushed": Pushed(
        *(MEMBERS, PushState.HELD, "no", "try again"),
        is_silent=True,
        is_refused=True,
        place="step()",
        functions=("step()",),
        changed=("step()", "LR = 0.2"),
        kept=("class Net keeps its layout",),
        file="/job/train.py",
        digest="1a2b3c",
        is_same=True,
        counts={"default_pg": 43},
    ),
    "few pushed": Pushed(),
    "ready": Ready(),
    "digest": FileDigest("1a2b3c"),
    "failure": Failure("not found", "check the port"),
    "event files": EventFiles((EventFile("0/train/events.out.tfevents.1", 4096),)),
    "event data": EventData(b"\0\1bytes"),
}
"""By name; tests/unit/relay_core/agent_api/recorded.json has what is sent for each."""
