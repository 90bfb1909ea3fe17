"""This process's answer to the `collectives` request, given by its helper thread."""

from __future__ import annotations

from relay_agent.collectives.call_places import with_call_places
from relay_agent.collectives.flight_recorder import read_recorders
from relay_agent.collectives.main_thread import activity
from relay_agent.stacks.in_process import collect as collect_stacks
from relay_core.agent_api.collectives import ProcessCollectives
from relay_core.agent_api.stacks import ProcessStacks

__all__ = ["collect"]


def collect() -> ProcessCollectives:
    """Return the process groups of this process, and the stack and activity of its main thread; takes up to 60 ms."""
    recorded = read_recorders()
    main = tuple(thread for thread in collect_stacks() if thread.main)
    return ProcessCollectives(
        torch=recorded.torch,
        rank=recorded.rank,
        world=recorded.world,
        groups=with_call_places(recorded.groups, main[0].frames if main else ()),
        problem=recorded.problem,
        activity=activity(),
        stacks=ProcessStacks(how="helper thread", threads=main),
    )
