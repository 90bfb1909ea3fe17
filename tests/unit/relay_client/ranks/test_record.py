"""Facts about the records of ranks."""

from dataclasses import replace

from relay_client.ranks.record import Ended, Local, Target, encode, node_record, target_record
from relay_client.ranks.view import StopReport
from relay_core.agent_api.announcement import AgentInfo, Attachment, Ending, State, TargetInfo
from relay_core.agent_api.usage import GpuShare, GpuUsage, NodeUsage, ProcessUsage

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
    agent = AgentInfo("1a2b3c4d", "box", forwards=(6006,), endings=(Ending(5678, 44, status=1, rank=0),))
    node = node_record(agent, ())
    assert ("box", "lost", (6006,), (Ended(5678, "ended with status 1", 44, rank=0),)) == (
        *(node.label, node.link, node.forwards, node.ended),
    )


def test_json_has_everything_that_is_known() -> None:
    """Numbers are numbers; what is unknown, and what no agent announces, is left out."""
    gpus, shares = (GpuUsage("H100", 0.871, 31, 80, uuid="GPU-1"),), (GpuShare(0, 12),)
    usage = NodeUsage(990.0, 7.0, 8, 34, 36, gpus, (ProcessUsage(5999, 1.234, 31, gpus=shares),))
    agent = AgentInfo("9f8e7d6c", host="box", usage=usage)
    assert {
        "agent": "9f8e7d6c",
        "host": "box",
        "link": "lost",
        "link_since": 0.0,
        "forwards": [],
        "ended": [],
        "usage": {
            "time": 990.0,
            "cpu": 7.0,
            "cores": 8,
            "memory": 34,
            "total": 36,
            "gpus": [{"name": "H100", "busy": 0.871, "memory": 31, "total": 80}],
            "processes": [
                {
                    "port": 5999,
                    "cpu": 1.234,
                    "memory": 31,
                    "gpus": [{"number": 0, "memory": 12, "is_reserved": False}],
                }
            ],
        },
        "targets": [
            {
                "port": 5999,
                "kind": "unknown",
                "text": "",
                "place": "",
                "waits": "",
                "local_ports": [],
                "is_away": False,
                "is_consequence": False,
                "attached_here": False,
            }
        ],
    } == encode(node_record(agent, [target_record(TargetInfo(5999))]))


def test_holder_without_a_connection() -> None:
    """The record has the user, and texts also state that the client has no connection."""
    target = target_record(replace(RUNNING, attachment=Attachment("bob@laptop", 950.0, is_away=True)))
    assert ("bob@laptop", True, "bob@laptop (not connected)") == (target.holder, target.is_away, target.who)
