"""Derives events from two consecutive states of a relay-client. No I/O."""

from __future__ import annotations

from collections.abc import Iterator

from relay_client.control.state import Status
from relay_client.ports.connection_state import Connection
from relay_client.ranks.changes import LOST, Event, node_changes


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
