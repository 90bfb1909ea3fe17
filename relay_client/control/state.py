"""The state of a running relay-client as other programs see it: nodes, ranks, local ports and connections.

All times are Unix times. Texts from other machines are sanitized for display (`relay_core.foreign.printable`).
"""

from __future__ import annotations

from dataclasses import dataclass

from relay_client.ports.connection_state import Connection, StopReport
from relay_client.ui.rank_view import Kind, RankView
from relay_core.agent_api.usage import GpuShare


@dataclass(frozen=True)
class ClientId:
    """Identity of a relay-client; a user can run several at once."""

    id: str
    """Eight hexadecimal digits, chosen at startup."""
    pid: int
    namespace: str
    """Host of the relay, with its port unless the port is 443."""
    hc: str
    """Name of the hybrid connection."""
    command: str
    """`forward`, `attach` or `tensorboard`."""
    started: float
    cwd: str
    version: str
    """Version of the package."""
    verbs: tuple[str, ...] = ()
    """Requests about the job that it can perform for a command."""


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
    link: str
    """`connecting`, `connected`, `not answering`, `reconnecting` or `lost`."""
    link_since: float
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
class Port:
    """One open port on this machine."""

    port: int
    remote_port: int
    """Logical port of a target; with `is_forward`, a port on the node."""
    is_forward: bool = False
    node_rank: int | None = None
    is_on_demand: bool = False
    """True if an `attach` request opened this port; then `release` closes it."""
    is_all_ranks: bool = False
    """True if this port leads to all ranks at once; `remote_port` is then 0."""
    is_editor: bool = False
    """True if an editor is listening on this port; the target then connects to the editor."""


@dataclass(frozen=True)
class Status:
    """The complete state of a relay-client."""

    client: ClientId
    time: float
    nodes: tuple[Node, ...] = ()
    """All nodes; those with a node rank come first, by rank."""
    ports: tuple[Port, ...] = ()
    connections: tuple[Connection, ...] = ()
