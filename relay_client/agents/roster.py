"""The roster of agents: their announcements and claims to ports, and the ranks without a registered process. No I/O."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from relay_client.ranks.view import how_ended
from relay_core.agent_api.announcement import AgentId, AgentInfo, Ending, TargetInfo
from relay_core.agent_api.metadata import PortConflict
from relay_core.grouping import by_key
from relay_core.value_parsers import MAX_PORT

# The roster of agents: their announcements, their claims to ports, and which agent owns each port. No I/O.
#
# If several agents claim a port, the earliest claim owns it. An unreachable agent keeps its ports, because it may
# reconnect and continue a debugger's session. It loses a port to a claim that is made after the agent became
# unreachable, for example because the job was restarted. After `AWAY_LIMIT`, it loses a port to any claim of a
# reachable agent.
#
#     one claim            owns the port, whether its agent is reachable or not
#     several claims       the earliest one that has not lost the port owns it; claims of two reachable agents conflict
#
# Why not the newest claim: a second job with the same ports would take over the port of a rank while somebody is
# debugging it. Why two ways to lose a port: with the limit alone, each restart of a job would wait for it; without the
# limit, an agent that has lost its network for good would keep the port from a job that was already there.
#
# Why the owner is computed at each question, and not stored: agents appear, get lost and return in any order, and the
# limit depends on the time of the question. The state consists of the claims and of the times at which they were
# received.
#
# What is ugly: the age of a claim is the agent's own statement, so that all clients agree on the owner. An agent whose
# clock is slow therefore wins conflicts; one whose clock is ahead counts as new.

AWAY_LIMIT = 10.0
"""Seconds after which an unreachable agent loses a port to a reachable one: longer than it takes to replace a
transport."""

PortOwners = Mapping[tuple[str, int], str]
"""Display name of the process that owns a port, by the agent and port of each target that claims it in vain."""


@dataclass(frozen=True)
class Destination:
    """The remote port that a local port leads to."""

    port: int
    is_forward: bool = False
    """True for a port on a node that `--forward` specifies; False for a debugger's logical port."""
    node_rank: int | None = None
    """The node of the agent, or None for any node."""
    is_all_ranks: bool = False
    """True for all ranks of the job at once; `port` is then 0."""

    def __str__(self) -> str:
        if self.is_all_ranks:
            return "all ranks"
        return f"port {self.port}" + (f" on node {self.node_rank}" if self.node_rank is not None else "")


@dataclass(frozen=True)
class Claim:
    """An agent's statement that one of its targets has a port."""

    agent: AgentInfo
    target: TargetInfo
    stamp: float
    """Unix time of the claim, as announced by the agent, or the time when this client first received it."""
    seen_at: float
    """Unix time when this client first received the claim, by its own clock."""
    number: int
    """Position in the order in which this client received claims."""

    @property
    def owner(self) -> str:
        """Display name of the claiming process: `node-0 pid 12`."""
        pid = self.target.pid
        return self.agent.name if pid is None else f"{self.agent.host} pid {pid}"


@dataclass(frozen=True)
class Conflict:
    """Two reachable agents claim one port."""

    port: int
    kept: Claim
    refused: Claim

    @property
    def key(self) -> tuple[int, str, str]:
        """A key that identifies the conflict; it does not depend on the other fields of the claims."""
        return self.port, f"{self.kept.agent.id} {self.kept.target.pid}", f"{self.refused.agent.id}"

    def concerns(self, agent_id: AgentId) -> bool:
        """True if an agent is one of the two that are in conflict."""
        return agent_id in {self.kept.agent.id, self.refused.agent.id}

    def report(self) -> PortConflict:
        """Return the report for both agents."""
        return PortConflict(self.port, self.kept.owner, self.refused.owner)


@dataclass
class _Entry:
    info: AgentInfo
    away_since: float | None = None
    claims: dict[int, Claim] = field(default_factory=dict)
    former: dict[int, TargetInfo] = field(default_factory=dict)
    """The last target of each port that no longer has a target."""


class Roster:
    """The agents to which this client has tunnels. All times are Unix times by this machine's clock."""

    def __init__(self) -> None:
        self.removed = 0
        """Number of agents removed so far."""
        self.waits: Mapping[int, str] | None = None
        """By port, in which collective operation processes wait, and for whom; None before this is known."""
        self._entries: dict[AgentId, _Entry] = {}
        self._claimants: dict[int, dict[AgentId, _Entry]] = {}
        """By claimed port: the agents that claim it."""
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[AgentInfo]:
        return iter([entry.info for entry in self._entries.values()])

    def ports(self) -> tuple[int, ...]:
        """Return the logical ports of all targets, in order."""
        return tuple(sorted(self._claimants))

    def put(self, info: AgentInfo, now: float) -> AgentInfo | None:
        """Store an announcement and return the agent's previous one, or None if the agent is new."""
        entry = self._entries.get(info.id)
        before = entry.info if entry else None
        if entry is None:
            entry = self._entries[info.id] = _Entry(info)
        entry.info = info
        claims = {target.port: self._claim(entry, info, target, now) for target in info.targets}
        ended = {port: claim.target for port, claim in entry.claims.items()}
        entry.former = {port: target for port, target in {**entry.former, **ended}.items() if port not in claims}
        self._set_claims(entry, claims)
        return before

    def _set_claims(self, entry: _Entry, claims: dict[int, Claim]) -> None:
        for port in entry.claims.keys() - claims.keys():
            del self._claimants[port][entry.info.id]
            if not self._claimants[port]:
                del self._claimants[port]
        for port in claims.keys() - entry.claims.keys():
            self._claimants.setdefault(port, {})[entry.info.id] = entry
        entry.claims = claims

    def _claim(self, entry: _Entry, info: AgentInfo, target: TargetInfo, now: float) -> Claim:
        old = entry.claims.get(target.port)
        if old is not None:
            return Claim(info, target, old.stamp, old.seen_at, old.number)
        return Claim(info, target, min(target.since or now, now), now, next(self._numbers))

    def lost(self, agent_id: AgentId, now: float) -> None:
        """Mark an agent as unreachable."""
        if (entry := self._entries.get(agent_id)) and entry.away_since is None:
            entry.away_since = now

    def found(self, agent_id: AgentId) -> None:
        """Mark an agent as reachable again."""
        if entry := self._entries.get(agent_id):
            entry.away_since = None

    def remove(self, agent_id: AgentId) -> None:
        """Remove an agent whose session has ended."""
        if entry := self._entries.pop(agent_id, None):
            self._set_claims(entry, {})
            self.removed += 1

    @property
    def reachable(self) -> int:
        """Number of reachable agents."""
        return sum(entry.away_since is None for entry in self._entries.values())

    def missing_agents(self) -> int:
        """Return how many agents are missing, estimated from the world sizes of the known jobs."""
        ranks = sum(max(0, (world_of(found.values()) or 0) - len(found)) for found in _jobs(self).values())
        return -(-ranks // max((len(agent.targets) for agent in self if agent.targets), default=1))

    def agent(self, agent_id: AgentId) -> AgentInfo | None:
        """Return the last announcement of an agent, or None."""
        entry = self._entries.get(agent_id)
        return entry.info if entry else None

    def former_targets(self, agent_id: AgentId) -> list[TargetInfo]:
        """Return the targets that an agent announced earlier, except those whose port has a new target."""
        entry = self._entries.get(agent_id)
        return list(entry.former.values()) if entry else []

    def owner(self, port: int, now: float) -> Claim | None:
        """Return the claim that owns a port, or None."""
        ranked = self._ranked(port, now)
        return ranked[0] if ranked else None

    def conflicts(self, now: float) -> list[Conflict]:
        """Return the conflicts between reachable agents, by port."""
        return [
            Conflict(port, kept, other)
            for port, kept, others in self._contested(now)
            for other in others
            if self._is_reachable(kept) and self._is_reachable(other)
        ]

    def port_owners(self, now: float) -> PortOwners:
        """Return who owns the port of each target that is unreachable because another target owns the port."""
        return {(other.agent.id, port): kept.owner for port, kept, others in self._contested(now) for other in others}

    def targets(self, now: float) -> list[Claim]:
        """Return the owning claim of each claimed port, by port."""
        owners = (self.owner(port, now) for port in self.ports())
        return [owner for owner in owners if owner is not None]

    def route(self, destination: Destination, now: float) -> AgentId | None:
        """Return the id of the agent that a destination leads to, or None."""
        wanted = destination.node_rank
        serving = self._serving(destination, now)
        return next((info.id for info in serving if wanted is None or info.node_rank == wanted), None)

    def _serving(self, destination: Destination, now: float) -> list[AgentInfo]:
        """Return the agents that serve a destination, the preferred one first."""
        claimants = [claim.agent for claim in self._ranked(destination.port, now)]
        entries = (entry for entry in self._entries.values() if destination.port in entry.info.forwards)
        forwarders = [entry.info for entry in sorted(entries, key=_preference)]
        return forwarders + claimants if destination.is_forward else claimants + forwarders

    def _contested(self, now: float) -> Iterator[tuple[int, Claim, list[Claim]]]:
        """Yield each port with several claims, in order: the port, its owner, and the other claims."""
        for port in sorted(port for port, claimants in self._claimants.items() if len(claimants) > 1):
            kept, *others = self._ranked(port, now)
            yield port, kept, others

    def _ranked(self, port: int, now: float) -> list[Claim]:
        """Return the claims to a port, the owner first."""
        claims = [(entry, entry.claims[port]) for entry in self._claimants.get(port, {}).values()]
        reachable = [claim for entry, claim in claims if entry.away_since is None]

        def is_superseded(entry: _Entry) -> bool:
            gone = entry.away_since
            return gone is not None and any(claim.seen_at > gone or now - gone >= AWAY_LIMIT for claim in reachable)

        order = sorted(claims, key=lambda pair: (is_superseded(pair[0]), pair[1].stamp, pair[1].number))
        return [claim for _, claim in order]

    def _is_reachable(self, claim: Claim) -> bool:
        return self._entries[claim.agent.id].away_since is None


def _preference(entry: _Entry) -> tuple[bool, bool, int]:
    """Sort key: reachable agents first, and those with a node rank, by rank."""
    return entry.away_since is not None, entry.info.node_rank is None, entry.info.node_rank or 0


# Which ranks of each job are not registered, and why; no I/O.
#
# A node may connect later than the others, or be unreachable. Its ranks are then in no announcement, but the world size
# in the announcements of the other nodes includes them. A command for all ranks must name the missing ranks.

NOT_FOUND = "not found"
MAX_ABSENT = 4096
"""Maximum number of absent ranks that are named, because each of any number of jobs can announce a world of 65,535."""


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
    """Return the ranks without a registered process, at most `MAX_ABSENT`.

    Args:
        agents: The announcements of all known agents.
        ranks: The ranks in question; None for all ranks of all jobs. Ranks beyond the world size of every job are
            reported as ranks of the first job.
    """
    agents = list(agents)
    jobs = _jobs(agents)
    endings = {ending.port: ending for agent in agents for ending in agent.endings or ()}
    found: dict[int, AbsentRank] = {}
    for base, rank in itertools.islice(_absent_of_jobs(jobs, ranks), MAX_ABSENT):
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
    holders = by_key((job, agent.id) for agent in agents for job in agent.held_jobs)
    return {
        each.id: tuple(sorted(job for job in each.jobs & holders.keys() if set(holders[job]) != {each.id}))
        for each in agents
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


def _absent_of_jobs(
    jobs: Mapping[int, Mapping[int, TargetInfo]], ranks: Collection[int] | None
) -> Iterator[tuple[int, int]]:
    """Yield the base port of each job with each of its ranks that is not registered."""
    for base, targets in jobs.items():
        world = min(world_of(targets.values()) or 0, MAX_PORT + 1 - base)  # higher ranks cannot have a port
        for rank in range(world) if ranks is None else sorted(ranks):
            if rank < world and rank not in targets:
                yield base, rank


def _absent(rank: int, port: int, ending: Ending | None) -> AbsentRank:
    if ending is None:
        return AbsentRank(rank, port, may_register=True)
    return AbsentRank(rank, port, how_ended(ending), has_ended=True)
