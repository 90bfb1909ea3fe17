"""Facts about where a coding agent sees ranks."""

from relay_client.hang.reports import RankReport
from relay_client.mcp.reading import places_in
from relay_core.agent_api.collectives import ProcessCollectives
from relay_core.agent_api.stacks import Frame, ProcessStacks, ThreadStack

OWN = Frame("/job/train.py", 21, "train_step")
TORCH = Frame("/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py", 2933, "all_reduce")


def report(rank: int, *frames: Frame, activity: str = "") -> RankReport:
    stacks = ProcessStacks("helper thread", (ThreadStack("MainThread", 1, True, frames),))
    return RankReport(rank, collectives=ProcessCollectives(stacks=stacks, activity=activity))


def test_ranks_wait_for_the_stopped_ones() -> None:
    """If all running ranks are in a collective operation, it is named with the stopped ranks; otherwise only named."""
    reports = [report(0, OWN, TORCH), report(1, OWN, activity="stopped"), report(2, OWN, TORCH)]
    found = [(item["collective"], item["waiting_for"]) for item in places_in(reports)]
    assert [("all_reduce", [1]), ("", []), ("all_reduce", [1])] == found
    found = [(item["collective"], item["waiting_for"]) for item in places_in([*reports, report(3, OWN)])]
    assert [("all_reduce", []), ("", []), ("all_reduce", []), ("", [])] == found
