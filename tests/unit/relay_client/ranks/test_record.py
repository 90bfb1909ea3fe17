"""Facts about the records of ranks."""

from dataclasses import replace

from relay_client.ranks.record import Ended, Local, Target, node_record, target_record
from relay_client.ranks.view import StopReport
from relay_core.agent_api.announcement import AgentInfo, Attachment, Ending, State, TargetInfo

RUNNING = TargetInfo(5681, 3, 4, 45, "train.py", state=State.RUNNING, since=900.0)
STOP = StopReport("breakpoint", 960.0, "/home/bob/train.py", 41)
LOCAL = Local((5681,), is_attached=True, stop=STOP)


def test_a_rank_that_is_debugged_here() -> None:
    """The record has what the agent has announced, and what the connections of this program show."""
    attached = replace(RUNNING, attachment=Attachment("bob@laptop", 950.0))
    assert Target(
        5681,
        *(3, 4, 45, "train.py", "stopped", "stopped at train.py:41", "train.py:41", "running"),
        since=960.0,
        holder="bob@laptop",
        held_since=950.0,
        local_ports=(5681,),
        attached_here=True,
        stop=STOP,
    ) == target_record(attached, local=LOCAL)


def test_a_rank_whose_port_leads_elsewhere() -> None:
    """What the connections to the port show is about the process that has the port."""
    text = "unreachable: port 5681 leads to box pid 7"
    assert Target(5681, 3, 4, 45, "train.py", "unreachable", text, state="running") == target_record(
        RUNNING, local=LOCAL, port_owner="box pid 7"
    )


def test_an_agent_without_a_tunnel() -> None:
    """Its session is over; how its processes have ended is text."""
    agent = AgentInfo("1a2b3c4d", "box", forwards=(6006,), endings=(Ending(5678, 44, status=1),))
    node = node_record(agent, ())
    assert ("box", "lost", (6006,), (Ended(5678, "ended with status 1", 44),)) == (
        *(node.label, node.link, node.forwards, node.ended),
    )
