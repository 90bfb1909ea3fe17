"""Derives events from two consecutive states of a relay-client. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from relay_client.control.messages import Event
from relay_client.control.state import Status
from relay_client.ports.connection_state import Connection
from relay_client.ranks.record import Node, Target
from relay_client.ranks.view import StopReport
from relay_core.agent_api.announcement import shared_labels

CONNECTED, CONNECTING, LOST = "connected", "connecting", "lost"
"""States of a tunnel, as `relay_core.net.session.client.LinkState` names them."""


def changes(before: Status, after: Status) -> Iterator[Event]:
    """Yield an event for each difference; changes in round trips and byte counts produce no events."""
    old_nodes, new_nodes = ({node.agent: node for node in status.nodes} for status in (before, after))
    now = after.time
    for agent, node in old_nodes.items():
        if agent not in new_nodes and node.link != LOST:
            yield Event("ended", now, f"{node.label}: the session has ended", agent=agent, host=node.host)
    for agent, node in new_nodes.items():
        yield from _link_changes(old_nodes.get(agent), node, now)
        yield from _target_changes(old_nodes.get(agent), node, now)
        yield from _wait_changes(old_nodes.get(agent), node, now)
    yield from _port_changes(before, after)
    yield from _connection_changes(before, after)


def _link_changes(old: Node | None, new: Node, now: float) -> Iterator[Event]:
    before = old.link if old is not None else CONNECTING
    if new.link in {before, CONNECTING}:
        return
    because = f": {new.link_reason}" if new.link_reason else ""
    about = Event("", now, "", agent=new.agent, host=new.host, reason=new.link_reason)
    if new.link == LOST:
        yield replace(about, event="ended", text=f"{new.label}: the session has ended{because}")
    elif new.link != CONNECTED:
        if before in {CONNECTED, CONNECTING}:
            yield replace(about, event="lost", text=f"{new.label}: {new.link}{because}")
    elif before == CONNECTING:
        yield replace(about, event="connected", text=f"{new.label}: connected")
    else:
        yield replace(about, event="resumed", text=f"{new.label}: connected again")


def _target_changes(old: Node | None, new: Node, now: float) -> Iterator[Event]:
    before = {target.port: target for target in old.targets} if old is not None else {}
    after = {target.port: target for target in new.targets}
    shared = shared_labels((*before.values(), *after.values()))
    for port in sorted(before.keys() - after.keys()):
        about, how = _about(new, before[port], shared, now), _how_ended(new, before[port])
        yield replace(about, event="ended", text=f"{about.text} {how or 'has ended'}", reason=how)
    shared = shared_labels(after.values())
    for port, target in sorted(after.items()):
        yield from _changes_of_target(before.get(port), target, _about(new, target, shared, now))


def _wait_changes(old: Node | None, new: Node, now: float) -> Iterator[Event]:
    """Yield an event for the ranks of a node that begin to wait for the same ranks, or no longer wait."""
    running = {target.port: target.text for target in (old.targets if old else ()) if target.kind == "running"}
    changed = [target for target in new.targets if target.kind == "running" and target.port in running]
    for text in dict.fromkeys(target.text for target in changed if target.text != running[target.port]):
        yield Event("state", now, f"{new.label}: ranks are {text}", agent=new.agent, host=new.host, state="running")


def _how_ended(node: Node, target: Target) -> str | None:
    return next((ended.how for ended in node.ended if (ended.port, ended.pid) == (target.port, target.pid)), None)


def _about(node: Node, target: Target, shared: Collection[str], now: float) -> Event:
    """Return an event about a target, with an empty kind and only the beginning of its text."""
    text = f"{target.label} on {node.host}{f' (port {target.port})' if target.label in shared else ''}"
    return Event("", now, text, agent=node.agent, host=node.host, rank=target.rank, port=target.port)


def _changes_of_target(old: Target | None, new: Target, about: Event) -> Iterator[Event]:
    known, name = old or Target(new.port), about.text
    if old is None or (old.state, old.detail, old.pid) != (new.state, new.detail, new.pid):
        yield replace(
            about, event="state", text=f"{name} {new.clause}", state=new.state, detail=new.detail, pid=new.pid
        )
    if new.holder is not None and new.who != known.who:
        yield replace(about, event="held", text=f"{name} is held by {new.who}", holder=new.holder)
    elif new.holder is None and known.holder is not None:
        text = f"{name} is free: {known.holder} has disconnected"
        yield replace(about, event="free", text=text, holder=known.holder)
    if new.stop is not None and new.stop != known.stop:
        yield _stopped(new, new.stop, about)
    elif new.stop is None and known.stop is not None:
        yield replace(about, event="continued", text=f"{name} continues")


def _stopped(target: Target, stop: StopReport, about: Event) -> Event:
    what = f"is stopped{f' at {target.place}' if target.place else ''} ({stop.reason})"
    text = f"{about.text} {target.clause if stop.uncaught else what}"
    return replace(
        about, event="stopped", text=text, reason=stop.reason, file=stop.file, line=stop.line, detail=stop.uncaught
    )


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
