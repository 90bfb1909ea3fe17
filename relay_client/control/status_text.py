"""The state of a running relay-client as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from relay_client.control.state import Port, Status
from relay_client.ranks.record import Connection, Ended, Node, Target
from relay_client.ranks.view import Kind
from relay_client.ui.target_table import run_lines
from relay_client.ui.text import clock, duration, format_ports, format_ranks, in_plural
from relay_core.grouping import by_key


def status_text(status: Status) -> str:
    """Return a paragraph: the relay-client, its ports, and its nodes with their ranks."""
    about = status.client
    name = f"relay-client {about.id} (pid {about.pid}, {about.command})"
    lines = [f"{name} on '{about.hc}' in {about.namespace}, since {clock(about.started)}"]
    lines += [f"  {_port(port, status)}" for port in status.ports]
    for node in status.nodes:
        lines.append(f"  {_node(node, status.time)}")
        lines += [f"    {_target(target, status.time)}" for target in node.targets]
        lines += [f"    {text}" for text in _endings(node)]
    lines += [f"  {line}" for line in run_lines(status.nodes)]
    if not status.nodes:
        lines.append("  no agent is connected")
    return "\n".join(lines)


def _port(port: Port, status: Status) -> str:
    mine = [connection for connection in status.connections if connection.port == port.port]
    waiting = [connection for connection in mine if connection.state == Connection.WAITING]
    if port.is_all_ranks:
        reached = [connection for connection in mine if connection.state == Connection.CONNECTED]
        return f"127.0.0.1:{port.port} to all ranks{f', {len(reached)} attached' if mine else ''}"
    if port.is_editor:
        return f"127.0.0.1:{port.port}: {_editor(mine)}"
    to = "" if port.remote_port == port.port and not port.is_forward else f" to port {port.remote_port}"
    node = f" on node {port.node_rank}" if port.node_rank is not None else ""
    connections = f", {len(mine)} connection{'s' if len(mine) > 1 else ''}" if mine else ""
    why = f" ({len(waiting)} waiting: {waiting[0].reason or 'looking for its target'})" if waiting else ""
    return f"127.0.0.1:{port.port}{to}{node}{connections}{why}"


def _editor(connections: list[Connection]) -> str:
    """Return whether an editor is listening on a port, and whether the job has connected to it."""
    if not connections:
        return "no editor is listening at the moment"
    connected = [connection for connection in connections if connection.state == Connection.CONNECTED]
    reason = connections[0].reason or "looking for its target"
    return (
        f"the job has connected to an editor ({len(connected)})" if connected else f"an editor is listening: {reason}"
    )


def _node(node: Node, now: float) -> str:
    if node.link == "connected":
        round_trip = f", round trip {node.round_trip * 1000:.1f} ms" if node.round_trip is not None else ""
        return f"{node.label}: connected{round_trip}"
    because = f": {node.link_reason}" if node.link_reason else ""
    return f"{node.label}: {node.link} for {duration(now - node.link_since)}{because}"


def _endings(node: Node) -> list[str]:
    """Return how processes have ended whose ports are not in use again: `rank 1, port 5679, ended with status 1`."""
    used = {target.port for target in node.targets}
    found = by_key(((ended.how, ended.rank is None), ended) for ended in node.ended if ended.port not in used)
    return [_ending(how, alike) for (how, _), alike in found.items()]


def _ending(how: str, alike: Sequence[Ended]) -> str:
    name = format_ports(one.port for one in alike)
    if ranks := [one.rank for one in alike if one.rank is not None]:
        name = f"{format_ranks(ranks)}, {name},"
    return f"{name} {how if len(alike) == 1 else in_plural(how)}"


def _target(target: Target, now: float) -> str:
    words = [target.label]
    if target.rank is not None:
        words.append(f"port {target.port}")
    if target.text:
        reason = f" ({target.stop.reason})" if target.stop is not None and target.kind == Kind.STOPPED.value else ""
        since = f" for {duration(now - target.since)}" if target.since is not None else ""
        words.append(f"{target.text}{reason}{since}")
    if target.holder is not None and not target.attached_here:
        held = f" for {duration(now - target.held_since)}" if target.held_since is not None else ""
        words.append(f"held by {target.who}{held}")
    if target.attached_here:
        words.append("attached here")
    return ", ".join(words)
