"""Which ranks of each job are not registered, and why; no I/O.

A node may connect later than the others, or be unreachable. Its ranks are then in no announcement, but the world size
in the announcements of the other nodes includes them. A command for all ranks must name the missing ranks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from relay_client.ui.endings import how_ended
from relay_core.agent_api.announcement import AgentId, AgentInfo, TargetInfo, held_jobs
from relay_core.agent_api.ending import Ending
from relay_core.value_parsers import MAX_PORT

__all__ = ["NOT_FOUND", "AbsentRank", "absent_ranks", "held_elsewhere", "world_of"]

NOT_FOUND = "not found"


@dataclass(frozen=True)
class AbsentRank:
    """A rank without a registered process."""

    rank: int
    port: int
    """The logical port that the rank's process would have."""
    reason: str = NOT_FOUND
    """`not found`, or how the rank has ended, such as `was killed by SIGKILL`."""
    has_ended: bool = False
    may_register: bool = False
    """True if a process of the rank's job has announced a world size that includes this rank."""


def absent_ranks(agents: Iterable[AgentInfo], ranks: Collection[int] | None = None) -> tuple[AbsentRank, ...]:
    """Return the ranks without a registered process.

    Args:
        agents: The announcements of all known agents.
        ranks: The ranks in question; None for all ranks of all jobs. Ranks beyond the world size of every job are
            reported as ranks of the first job.
    """
    agents = list(agents)
    jobs = _jobs(agents)
    endings = {ending.port: ending for agent in agents for ending in agent.endings or ()}
    found: dict[int, AbsentRank] = {}
    for base, targets in jobs.items():
        world = min(world_of(targets.values()) or 0, MAX_PORT + 1 - base)  # higher ranks cannot have a port
        for rank in range(world) if ranks is None else sorted(ranks):
            if rank < world and rank not in targets:
                found[base + rank] = _absent(rank, base + rank, endings.get(base + rank))
    if jobs and ranks is not None:
        known = {rank for targets in jobs.values() for rank in targets}
        others = set(ranks).difference(known, (absent.rank for absent in found.values()))
        base = next(iter(jobs))
        found |= {base + rank: AbsentRank(rank, base + rank) for rank in others}
    return tuple(absent for _, absent in sorted(found.items()))


def held_elsewhere(agents: Iterable[AgentInfo]) -> dict[AgentId, tuple[int, ...]]:
    """Return, for each agent, the base ports of its jobs of which another agent announces a held rank."""
    agents = list(agents)
    holders: dict[int, set[AgentId]] = {}
    for agent in agents:
        for job in held_jobs(agent.targets):
            holders.setdefault(job, set()).add(agent.id)
    jobs = {agent.id: {target.base_port for target in agent.targets} for agent in agents}
    return {
        each: tuple(sorted(job for job in found & holders.keys() if holders[job] != {each}))
        for each, found in jobs.items()
    }


def world_of(targets: Iterable[TargetInfo]) -> int | None:
    """Return the number of ranks in a job, as announced by its processes; None if no process announces it.

    Processes that an elastic launcher has restarted may announce a different number from processes that are still
    exiting.
    """
    return max((target.world for target in targets if target.world is not None), default=None)


def _jobs(agents: Iterable[AgentInfo]) -> dict[int, dict[int, TargetInfo]]:
    """Return the registered ranks of each job, by base port, which distinguishes the jobs on a hybrid connection."""
    found: dict[int, dict[int, TargetInfo]] = {}
    for agent in agents:
        for target in agent.targets:
            if target.rank is not None:
                found.setdefault(target.base_port, {})[target.rank] = target
    return dict(sorted(found.items()))


def _absent(rank: int, port: int, ending: Ending | None) -> AbsentRank:
    if ending is None:
        return AbsentRank(rank, port, may_register=True)
    return AbsentRank(rank, port, how_ended(ending), has_ended=True)
