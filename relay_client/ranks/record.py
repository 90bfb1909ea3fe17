"""The records of nodes, their ranks and connections to them, as tables, the control socket and commands show them.

All times are Unix times. Texts from other machines are sanitized for display (`relay_core.foreign.printable`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, is_dataclass
from typing import Any, ClassVar

from relay_client.ranks.view import Kind, RankView, StopReport, how_ended, is_consequence, rank_view
from relay_core.agent_api.announcement import AgentInfo, TargetInfo
from relay_core.agent_api.usage import NodeUsage
from relay_core.records import fields_of


@dataclass(frozen=True)
class Target:
    """One process that can be debugged."""

    port: int
    """Its logical port."""
    rank: int | None = None
    world: int | None = None
    pid: int | None = None
    script: str | None = None
    kind: str = "unknown"
    """What it is doing: a `Kind`."""
    text: str = ""
    """The same as text: `crashed: ValueError: no`, `stopped at train.py:41`, `waiting for a debugger`, `running`."""
    place: str = ""
    """File name and line where it is stopped, as in `train.py:41`; "" if unknown."""
    state: str | None = None
    """`running`, `waiting`, `crashed`, or None if not announced."""
    detail: str | None = None
    since: float | None = None
    """Unix time when what it is doing began."""
    until: float | None = None
    holder: str | None = None
    """`user@host` of the attached debugger."""
    held_since: float | None = None
    is_away: bool = False
    """True while the holder's client has no connection; the process may be stopped until `release`."""
    is_consequence: bool = False
    """True if its exception is usually raised because another rank has crashed or ended."""
    waits: str = ""
    """The collective operation in which it waits for others: `in all_reduce, waiting for rank 2`; "" if in none."""
    local_ports: tuple[int, ...] = ()
    """Ports on this machine that lead to this process."""
    attached_here: bool = False
    """True if a connection through one of `local_ports` has reached this process."""
    stop: StopReport | None = None
    """Where the process is stopped; None if it is running, or if somebody else's debugger has stopped it."""

    @property
    def label(self) -> str:
        """Display name: `rank 3`, or `port 5678`."""
        return f"port {self.port}" if self.rank is None else f"rank {self.rank}"

    @property
    def who(self) -> str:
        """The holder as shown to users: `bob@laptop`, or `bob@laptop (not connected)`; "" if there is none."""
        return f"{self.holder or ''}{' (not connected)' if self.is_away else ''}"

    @property
    def clause(self) -> str:
        """The end of a sentence about the process: `is running`, `crashed: ValueError: no`."""
        return RankView(Kind(self.kind), self.text).clause


@dataclass(frozen=True)
class Ended:
    """A process that has exited."""

    port: int
    """Its logical port."""
    how: str
    """How the process ended, as in `ended with status 1`."""
    pid: int | None = None
    is_final: bool = True
    """False while the process is still exiting; how it has ended may follow."""
    rank: int | None = None


@dataclass(frozen=True)
class Node:
    """One agent and its targets."""

    agent: str
    """Id of the agent."""
    host: str
    link: str = "lost"
    """`connecting`, `connected`, `not answering`, `reconnecting` or `lost`."""
    link_since: float = 0.0
    link_reason: str | None = None
    """Why the tunnel is not connected."""
    round_trip: float | None = None
    """Seconds."""
    node_rank: int | None = None
    run: str | None = None
    run_url: str | None = None
    """Address of the run's page, such as the one in Azure ML studio."""
    cwd: str | None = None
    """Working directory of the job."""
    usage: NodeUsage | None = None
    """Resource usage of the node and its processes, by logical port; None without `--debug-monitor`."""
    targets: tuple[Target, ...] = ()
    forwards: tuple[int, ...] = ()
    """Other ports of the node that the agent forwards."""
    ended: tuple[Ended, ...] = ()
    """Processes that exited recently, if the agent announces them."""

    @property
    def label(self) -> str:
        """Display name: `node 1 (host)`, or the host."""
        return self.host if self.node_rank is None else f"node {self.node_rank} ({self.host})"


@dataclass(frozen=True)
class Local:
    """What only this program knows about a target, because its connections lead to it."""

    ports: tuple[int, ...] = ()
    """Ports on this machine that lead to the target."""
    is_attached: bool = False
    """True if a connection has reached the target."""
    stop: StopReport | None = None
    """Where an editor has stopped it."""


NOTHING_LOCAL = Local()


def target_record(found: TargetInfo, local: Local = NOTHING_LOCAL, *, waits: str = "", port_owner: str = "") -> Target:
    """Return the record of a target.

    Args:
        found: Its announcement.
        local: What this program knows about the target with this port.
        waits: The collective operation in which it waits, and for whom; "" if it does not wait.
        port_owner: Display name of the process to which the port leads instead; "" if it leads to the target.
    """
    local = NOTHING_LOCAL if port_owner else local
    view = rank_view(found, local.stop, waits=waits, port_owner=port_owner)
    return Target(
        port=found.port,
        rank=found.rank,
        world=found.world,
        pid=found.pid,
        script=found.script or None,
        kind=view.kind.value,
        text=view.text,
        place=view.place,
        state=found.state.value or None,
        detail=found.detail or None,
        since=view.since,
        until=found.until,
        holder=found.attachment.user if found.attachment else None,
        held_since=found.attachment.since if found.attachment else None,
        is_away=found.attachment is not None and found.attachment.is_away,
        is_consequence=is_consequence(found.detail),
        waits=waits,
        local_ports=local.ports,
        attached_here=local.is_attached,
        stop=local.stop,
    )


def node_record(agent: AgentInfo, targets: Iterable[Target] = ()) -> Node:
    """Return the record of an agent without a tunnel."""
    return Node(
        agent=agent.id,
        host=agent.host,
        node_rank=agent.node_rank,
        run=agent.run or None,
        run_url=agent.run_url or None,
        cwd=agent.cwd or None,
        usage=agent.usage,
        targets=tuple(targets),
        forwards=agent.forwards,
        ended=tuple(Ended(one.port, how_ended(one), one.pid, one.is_final, one.rank) for one in agent.endings or ()),
    )


@dataclass(frozen=True)
class Connection:
    """A connection from a local program to a port, or from a target to an editor that is listening on the port."""

    WAITING: ClassVar[str] = "waiting"
    CONNECTED: ClassVar[str] = "connected"
    CLOSED: ClassVar[str] = "closed"

    number: int
    port: int
    state: str
    """`waiting` for a target, or `connected`; `closed` only while it is being removed."""
    since: float
    reason: str | None = None
    """Why the connection is waiting or has closed."""
    sent: int = 0
    """Bytes read from the local program."""
    received: int = 0
    """Bytes written to the local program."""
    stop: StopReport | None = None
    remote_port: int | None = None
    """For the port of all ranks, the logical port of one rank; an editor there has one connection to each rank."""


# JSON of these and of all other records of the control socket.


def encode(value: object) -> Any:
    """Return the JSON value of a record or of one of its field values; fields that are None are left out."""
    if is_dataclass(value) and not isinstance(value, type):
        found = {field.name: getattr(value, field.name) for field in fields_of(type(value))}
        return {name: encode(each) for name, each in found.items() if each is not None}
    return [encode(each) for each in value] if isinstance(value, tuple) else value
