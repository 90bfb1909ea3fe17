"""The records of nodes and their ranks, as tables, the control socket, commands and coding agents show them.

All times are Unix times. Texts from other machines are sanitized for display (`relay_core.foreign.printable`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from relay_client.ranks.view import Kind, RankView, StopReport, how_ended, is_consequence, rank_view
from relay_core.agent_api.announcement import AgentInfo, TargetInfo
from relay_core.agent_api.usage import AllocatorUsage, GpuShare, ProcessUsage


@dataclass(frozen=True)
class Allocator:
    """Memory of torch's CUDA allocator in a process, on all of its GPUs."""

    allocated: int
    """Bytes that tensors occupy."""
    reserved: int
    """Bytes that the allocator holds."""
    peak: int
    """The highest value of `allocated` so far."""
    ooms: int
    """Number of allocations that failed."""
    retries: int
    """Number of allocations that freed unused memory first."""


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
    """What it is doing: `crashed`, `stopped`, `waiting`, `running` or `unknown`."""
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
    """`user@host` of the attached debugger; ` (not connected)` follows while its client has no connection."""
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
    cpu: float | None = None
    """Processors in use; 1.0 means that one processor is fully used. None without `--debug-monitor`."""
    memory: int | None = None
    """Size of the resident set in bytes. None without `--debug-monitor`."""
    allocator: Allocator | None = None
    """GPU memory; None without `--debug-monitor`, or if this process has not used CUDA through torch."""
    gpus: tuple[GpuShare, ...] = ()
    """The NVIDIA GPUs that the process uses, with `--debug-monitor`."""

    @property
    def label(self) -> str:
        """Display name: `rank 3`, or `port 5678`."""
        return f"port {self.port}" if self.rank is None else f"rank {self.rank}"

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


@dataclass(frozen=True)
class Gpu:
    """One GPU of a node."""

    name: str
    busy: float
    """Share of the time in which the GPU executed kernels, from 0 to 1."""
    memory: int
    """Bytes in use."""
    total: int


@dataclass(frozen=True)
class Usage:
    """Resource usage of a node, averaged over one sampling interval."""

    time: float
    """Unix time according to the node's clock."""
    cpu: float
    """Processors in use."""
    cores: int
    memory: int
    """Bytes in use."""
    total: int
    gpus: tuple[Gpu, ...] = ()


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
    usage: Usage | None = None
    """Resource usage; None without `--debug-monitor`."""
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


def target_record(
    found: TargetInfo, used: ProcessUsage | None = None, local: Local = NOTHING_LOCAL, *, port_owner: str = ""
) -> Target:
    """Return the record of a target.

    Args:
        found: Its announcement.
        used: Its resource usage.
        local: What this program knows about the target with this port.
        port_owner: Display name of the process to which the port leads instead; "" if it leads to the target.
    """
    local = NOTHING_LOCAL if port_owner else local
    view = rank_view(found, local.stop, port_owner=port_owner)
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
        holder=found.attachment.who if found.attachment else None,
        held_since=found.attachment.since if found.attachment else None,
        is_away=found.attachment is not None and found.attachment.is_away,
        is_consequence=is_consequence(found.detail),
        waits=found.waits,
        local_ports=local.ports,
        attached_here=local.is_attached,
        stop=local.stop,
        cpu=used.cpu if used else None,
        memory=used.memory if used else None,
        allocator=_allocator(used.allocator) if used and used.allocator else None,
        gpus=used.gpus if used else (),
    )


def node_record(agent: AgentInfo, targets: Iterable[Target]) -> Node:
    """Return the record of an agent without a tunnel."""
    return Node(
        agent=agent.id,
        host=agent.host,
        node_rank=agent.node_rank,
        run=agent.run or None,
        run_url=agent.run_url or None,
        cwd=agent.cwd or None,
        usage=_usage(agent),
        targets=tuple(targets),
        forwards=agent.forwards,
        ended=tuple(Ended(ending.port, how_ended(ending), ending.pid) for ending in agent.endings or ()),
    )


def _usage(agent: AgentInfo) -> Usage | None:
    found = agent.usage
    if found is None:
        return None
    gpus = tuple(Gpu(gpu.name, gpu.busy, gpu.memory, gpu.total) for gpu in found.gpus)
    return Usage(found.time, found.cpu, found.cores, found.memory, found.total, gpus)


def _allocator(found: AllocatorUsage) -> Allocator:
    return Allocator(found.allocated, found.reserved, found.peak, found.ooms, found.retries)
