"""The state of a running relay-client as other programs see it; `relay_client.ranks.record` has its nodes and ranks.

All times are Unix times. Texts from other machines are sanitized for display (`relay_core.foreign.printable`).
"""

from __future__ import annotations

from dataclasses import dataclass

from relay_client.ports.connection_state import Connection
from relay_client.ranks.record import Node


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
