"""Which agents there are, and which of them a port leads to: bookkeeping without I/O.

A port that two agents claim belongs to the earlier claim. An agent that cannot be reached keeps its ports, because it
may come back with a debugger's session; it loses a port to a claim that was made after it was lost (the job was
restarted), and after `AWAY_LIMIT` to any other.

    claimed by one       it, reachable or not
    claimed by several   the earliest of those that count; while two of them can be reached that is a conflict
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from relay_core.agent_api.announcement import AgentId, AgentInfo, TargetInfo
from relay_core.agent_api.metadata import PortConflict

__all__ = ["Claim", "Conflict", "Destination", "Roster"]

AWAY_LIMIT = 10.0
"""Seconds after which an agent that cannot be reached loses a port to another that can: longer than the usual change of
a transport."""
LAST = 1 << 62
"""Sorts agents without a node rank behind those with one."""


@dataclass(frozen=True)
class Destination:
    """What a local port stands for."""

    port: int
    is_forward: bool = False
    """Asked for with `--forward`: a port of the node, rather than a debugger's."""
    node_rank: int | None = None
    """Only the agent of this node, or None for any."""

    def __str__(self) -> str:
        return f"port {self.port}" + (f" on node {self.node_rank}" if self.node_rank is not None else "")


@dataclass(frozen=True)
class Claim:
    """One agent says that it serves a port."""

    agent: AgentInfo
    target: TargetInfo
    stamp: float
    """Unix seconds: since when, as the agent says, or when this client first heard of it."""
    heard_at: float
    """Unix seconds by this client's clock."""
    number: int
    """Order in which this client heard of claims."""

    @property
    def owner(self) -> str:
        """Who claims it, in words: `node-0 pid 12`."""
        pid = self.target.pid
        return self.agent.name if pid is None else f"{self.agent.host} pid {pid}"


@dataclass(frozen=True)
class Conflict:
    """Two agents that can be reached claim one port."""

    port: int
    kept: Claim
    refused: Claim

    @property
    def key(self) -> tuple[int, str, str]:
        """What makes it this conflict, whatever else is told about the two."""
        return self.port, f"{self.kept.agent.id} {self.kept.target.pid}", f"{self.refused.agent.id}"

    def concerns(self, agent_id: AgentId) -> bool:
        """Whether an agent is one of the two."""
        return agent_id in {self.kept.agent.id, self.refused.agent.id}

    def report(self) -> PortConflict:
        """Return what is reported to both agents."""
        return PortConflict(self.port, self.kept.owner, self.refused.owner)


@dataclass
class _Entry:
    info: AgentInfo
    away_since: float | None = None
    claims: dict[int, Claim] = field(default_factory=dict)


class Roster:
    """The agents that this client has tunnels with. All times are unix seconds of this machine's clock."""

    def __init__(self) -> None:
        self._entries: dict[AgentId, _Entry] = {}
        self._numbers = itertools.count(1)

    def __repr__(self) -> str:
        away = sum(entry.away_since is not None for entry in self._entries.values())
        return f"<Roster agents={len(self._entries)} away={away}>"

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[AgentInfo]:
        return iter([entry.info for entry in self._entries.values()])

    def put(self, info: AgentInfo, now: float) -> AgentInfo | None:
        """Note what an agent says now; returns what it said before, or None if it is new."""
        entry = self._entries.get(info.id)
        before = entry.info if entry else None
        if entry is None:
            entry = self._entries[info.id] = _Entry(info)
        entry.info = info
        claims = {target.port: self._claim(entry, info, target, now) for target in info.targets}
        entry.claims = claims
        return before

    def _claim(self, entry: _Entry, info: AgentInfo, target: TargetInfo, now: float) -> Claim:
        old = entry.claims.get(target.port)
        if old is not None:
            return Claim(info, target, old.stamp, old.heard_at, old.number)
        return Claim(info, target, min(target.since or now, now), now, next(self._numbers))

    def lost(self, agent_id: AgentId, now: float) -> None:
        """An agent cannot be reached for the moment."""
        if (entry := self._entries.get(agent_id)) and entry.away_since is None:
            entry.away_since = now

    def found(self, agent_id: AgentId) -> None:
        """It can be reached again."""
        if entry := self._entries.get(agent_id):
            entry.away_since = None

    def remove(self, agent_id: AgentId) -> AgentInfo | None:
        """Forget an agent whose session is over."""
        entry = self._entries.pop(agent_id, None)
        return entry.info if entry else None

    @property
    def reachable(self) -> int:
        """Number of agents that can be reached."""
        return sum(entry.away_since is None for entry in self._entries.values())

    def agent(self, agent_id: AgentId) -> AgentInfo | None:
        """Return what is known about one agent."""
        entry = self._entries.get(agent_id)
        return entry.info if entry else None

    def owner(self, port: int, now: float) -> Claim | None:
        """Return whose a port is."""
        counted = self._counted(port, now)
        return counted[0] if counted else None

    def conflicts(self, now: float) -> list[Conflict]:
        """Return the ports that two agents claim at the moment."""
        found: list[Conflict] = []
        ports = sorted({port for entry in self._entries.values() for port in entry.claims})
        for port in ports:
            kept, *others = self._counted(port, now)
            found += [Conflict(port, kept, other) for other in others if self._is_here(kept) and self._is_here(other)]
        return found

    def targets(self, now: float) -> list[Claim]:
        """Return every target that a port leads to, by port."""
        ports = sorted({port for entry in self._entries.values() for port in entry.claims})
        owners = (self.owner(port, now) for port in ports)
        return [owner for owner in owners if owner is not None]

    def route(self, destination: Destination, now: float) -> AgentId | None:
        """Return the id of the agent that a destination leads to."""
        serving = self._serving(destination, now)
        if destination.node_rank is not None:
            serving = [info for info in serving if info.node_rank == destination.node_rank]
        return serving[0].id if serving else None

    def _serving(self, destination: Destination, now: float) -> list[AgentInfo]:
        """Return who serves a destination, the best first."""
        port = destination.port
        forwards = sorted(
            (entry for entry in self._entries.values() if port in entry.info.forwards),
            key=lambda entry: (entry.away_since is not None, _node(entry.info)),
        )
        as_forward = [entry.info for entry in forwards]
        as_target = [claim.agent for claim in self._counted(port, now)]
        return as_forward + as_target if destination.is_forward else as_target + as_forward

    def _counted(self, port: int, now: float) -> list[Claim]:
        """Return the claims to a port, the owner's first."""
        claims = [(entry, entry.claims[port]) for entry in self._entries.values() if port in entry.claims]
        here = [claim for entry, claim in claims if entry.away_since is None]

        def gave_way(entry: _Entry) -> bool:
            gone = entry.away_since
            return gone is not None and any(claim.heard_at > gone or now - gone >= AWAY_LIMIT for claim in here)

        order = sorted(claims, key=lambda pair: (gave_way(pair[0]), pair[1].stamp, pair[1].number))
        return [claim for _, claim in order]

    def _is_here(self, claim: Claim) -> bool:
        return self._entries[claim.agent.id].away_since is None


def _node(info: AgentInfo) -> int:
    return LAST if info.node_rank is None else info.node_rank
