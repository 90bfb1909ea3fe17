"""The state of a running relay-client as other programs see it, and the events that follow from its changes. No I/O.

`relay_client.ranks.record` has its nodes, ranks and connections.

All times are Unix times. Texts from other machines are sanitized for display (`relay_core.foreign.printable`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relay_client.ranks.changes import LOST, Event, node_changes
from relay_client.ranks.record import Connection, Node


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


# Events, derived from two consecutive states.


def changes(before: Status, after: Status) -> Iterator[Event]:
    """Yield an event for each difference; changes in round trips and byte counts produce no events."""
    old_nodes, new_nodes = ({node.agent: node for node in status.nodes} for status in (before, after))
    now = after.time
    for agent, node in old_nodes.items():
        if agent not in new_nodes and node.link != LOST:
            yield Event("ended", now, f"{node.label}: the session has ended", agent=agent, host=node.host)
    for agent, node in new_nodes.items():
        yield from node_changes(old_nodes.get(agent), node, now)
    yield from _port_changes(before, after)
    yield from _connection_changes(before, after)


def _port_changes(before: Status, after: Status) -> Iterator[Event]:
    old, new = ({port.port for port in status.ports if not port.is_editor} for status in (before, after))
    for port in sorted(new - old):
        yield Event("opened", after.time, f"port {port} is open", port=port)
    for port in sorted(old - new):
        yield Event("closed", after.time, f"port {port} is closed", port=port)


def _connection_changes(before: Status, after: Status) -> Iterator[Event]:
    old = {connection.number: connection for connection in before.connections}
    for connection in after.connections:
        known = old.get(connection.number)
        if known is None or (known.state, known.reason) != (connection.state, connection.reason):
            yield _connection_event(connection, after.time)
    remaining = {connection.number for connection in after.connections}
    for number, connection in old.items():
        if number not in remaining and connection.state != Connection.CLOSED:
            yield _connection_event(connection, after.time, has_ended=True)


def _connection_event(found: Connection, now: float, *, has_ended: bool = False) -> Event:
    because = f": {found.reason}" if found.reason else ""
    kind, words = {
        Connection.WAITING: ("waiting", f"is waiting for a target{because}"),
        Connection.CONNECTED: ("attached", "is connected to its target"),
        Connection.CLOSED: ("detached", f"has ended{because}"),
    }[Connection.CLOSED if has_ended else found.state]
    name = f"port {found.port} connection {found.number}"
    return Event(kind, now, f"{name} {words}", port=found.port, connection=found.number, reason=found.reason)
