"""The state of a running relay-client as other programs see it: nodes, ranks, local ports and connections.

All times are Unix times. Texts from other machines are sanitized for display (`relay_client.ui.text`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

__all__ = ["ClientId", "Connection", "Ended", "Gpu", "Node", "Port", "Status", "Stop", "Target", "Usage"]


@dataclass(frozen=True)
class ClientId:
    """Identity of a relay-client; a user can run several at once."""

    id: str
    """Eight hexadecimal digits, chosen at startup."""
    pid: int
    namespace: str
    """Host, and port unless it is 443."""
    hc: str
    """Name of the hybrid connection."""
    command: str
    """`forward`, `attach` or `tensorboard`."""
    started: float
    cwd: str
    version: str
    """Version of the package."""


@dataclass(frozen=True)
class Stop:
    """Where a process is stopped, as reported by its debugger to the editor."""

    reason: str
    """The reason as the debugger reports it: `breakpoint`, `step`, `exception`, `pause`, ..."""
    since: float
    file: str | None = None
    """None until the editor has requested the stack; a path on this machine if the `pathMappings` lead to one."""
    line: int | None = None
    function: str | None = None

    @property
    def place(self) -> str:
        """File name and line, as in `train.py:41`; "" if unknown."""
        if self.file is None:
            return ""
        name = self.file.replace("\\", "/").rpartition("/")[2]
        return name if self.line is None else f"{name}:{self.line}"


@dataclass(frozen=True)
class Target:
    """One process that can be debugged."""

    port: int
    """Its logical port."""
    rank: int | None = None
    world: int | None = None
    pid: int | None = None
    script: str | None = None
    state: str | None = None
    """`running`, `waiting`, `crashed`, or None if not announced."""
    detail: str | None = None
    since: float | None = None
    until: float | None = None
    holder: str | None = None
    """`user@host` of the attached debugger."""
    held_since: float | None = None
    local_ports: tuple[int, ...] = ()
    """Ports on this machine that lead to it."""
    attached_here: bool = False
    """True if a connection through one of these ports has reached it."""
    stop: Stop | None = None
    """None if it is running, or if somebody else's debugger has stopped it."""
    cpu: float | None = None
    """Processors in use; 1.0 is one of them all the time. None without `--debug-monitor`."""
    memory: int | None = None
    """Bytes of its resident set; likewise."""
    activity: str | None = None
    """What its node announces of a process with a debugger: `running`, `stopped` or `stopped at train.py:41`."""

    @property
    def label(self) -> str:
        """Display name: `rank 3`, or `port 5678`."""
        return f"port {self.port}" if self.rank is None else f"rank {self.rank}"


@dataclass(frozen=True)
class Ended:
    """A process that has exited."""

    port: int
    """Its logical port."""
    how: str
    """How it ended, as in `ended with status 1`."""
    pid: int | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU of a node."""

    name: str
    busy: float
    """Share of the time in which it executed kernels, 0 to 1."""
    memory: int
    """Bytes in use."""
    total: int


@dataclass(frozen=True)
class Usage:
    """What a node uses, averaged over one sampling interval."""

    time: float
    """By the node's clock."""
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
    """Address of the run's page, such as that in Azure ML studio."""
    cwd: str | None = None
    """Working directory of the job."""
    usage: Usage | None = None
    """None without `--debug-monitor`."""
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
    """Logical port of a target, or with `is_forward` a port of the node."""
    is_forward: bool = False
    node_rank: int | None = None
    is_on_demand: bool = False
    """True if an `attach` request opened it; then `release` closes it."""
    is_all_ranks: bool = False
    """True if it leads to all ranks at once; then `remote_port` is 0."""
    is_editor: bool = False
    """True if an editor is listening on it, to which the target connects."""


@dataclass(frozen=True)
class Connection:
    """One connection of a local program to a port, or of a target to an editor that is listening on the port."""

    WAITING: ClassVar[str] = "waiting"
    CONNECTED: ClassVar[str] = "connected"
    CLOSED: ClassVar[str] = "closed"

    number: int
    port: int
    state: str
    """`waiting` for a target, or `connected`; `closed` only while it is being removed."""
    since: float
    reason: str | None = None
    """Why it is waiting or has closed."""
    sent: int = 0
    """Bytes read from the local program."""
    received: int = 0
    """Bytes written to the local program."""
    stop: Stop | None = None
    remote_port: int | None = None
    """Logical port of its rank, for a connection to the port of all ranks: its editor has one to each."""


@dataclass(frozen=True)
class Status:
    """The whole state."""

    client: ClientId
    time: float
    nodes: tuple[Node, ...] = ()
    """All nodes; those with a node rank come first, by rank."""
    ports: tuple[Port, ...] = ()
    connections: tuple[Connection, ...] = ()
