"""Builds, from the tunnels and the open ports, the state that other programs see. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from relay_client.agents.roster import PortOwners
from relay_client.agents.tunnels import Tunnels
from relay_client.control.state import Allocator, ClientId, Ended, Gpu, Node, Port, Status, Target, Usage
from relay_client.ports.connection_state import Connection, StopReport
from relay_client.ports.forwarder import Forwarder
from relay_client.ports.local_port import LocalPort
from relay_client.ui.rank_view import how_ended, is_consequence, rank_view
from relay_client.ui.target_table import by_node
from relay_core.agent_api.announcement import AgentId, AgentInfo, TargetInfo
from relay_core.agent_api.usage import AllocatorUsage


def take_snapshot(client: ClientId, tunnels: Tunnels, forwarder: Forwarder, on_demand: Sequence[int] = ()) -> Status:
    """Return the current state.

    Args:
        client: Identity of this relay-client.
        tunnels: Its tunnels.
        forwarder: Its open ports.
        on_demand: The local ports that requests have opened.
    """
    now = time.time()
    ports = tuple(
        [_port(local, is_on_demand=local.port in on_demand) for local in forwarder.ports]
        + [_port(local, is_editor=True) for local in forwarder.editor_ports]
    )
    connections = tuple(record.describe() for record in forwarder.connections)
    leading: dict[int, list[Port]] = {}
    for port in ports:
        if not port.is_forward:
            leading.setdefault(port.remote_port, []).append(port)
    owners = tunnels.roster.port_owners(now)
    nodes = tuple(_node(agent, tunnels, owners, leading, connections) for agent in by_node(tunnels.roster))
    return Status(client, now, nodes, ports, connections)


def _port(local: LocalPort, *, is_on_demand: bool = False, is_editor: bool = False) -> Port:
    to = local.destination
    return Port(local.port, to.port, to.is_forward, to.node_rank, is_on_demand, to.is_all_ranks, is_editor)


def _node(
    agent: AgentInfo,
    tunnels: Tunnels,
    owners: PortOwners,
    leading: Mapping[int, Sequence[Port]],
    connections: Sequence[Connection],
) -> Node:
    link = tunnels.link(AgentId(agent.id))
    targets = tuple(
        _target(found, agent, owners.get((agent.id, found.port), ""), leading, connections) for found in agent.targets
    )
    return Node(
        agent=agent.id,
        host=agent.host,
        link=link.state.value if link else "lost",
        link_since=link.since if link else 0.0,
        link_reason=(link.reason or None) if link else None,
        round_trip=link.round_trip if link else None,
        node_rank=agent.node_rank,
        run=agent.run or None,
        run_url=agent.run_url or None,
        cwd=agent.cwd or None,
        usage=_usage(agent),
        targets=targets,
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


def _target(
    found: TargetInfo,
    agent: AgentInfo,
    port_owner: str,
    leading: Mapping[int, Sequence[Port]],
    connections: Sequence[Connection],
) -> Target:
    """Return the state of a target.

    Args:
        found: The target.
        agent: Its agent.
        port_owner: The owner of its port if that is another target, else "".
        leading: By logical port: the local ports that lead to it.
        connections: The connections to all local ports.
    """
    ports: Sequence[Port] = () if port_owner else leading.get(found.port, ())
    local = {port.port for port in ports}
    mine = [each for each in connections if not port_owner and (each.port in local or each.remote_port == found.port)]
    used = agent.usage.of(found.port) if agent.usage else None
    stop = _latest(mine)
    view = rank_view(found, stop, port_owner=port_owner)
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
        local_ports=tuple(port.port for port in ports if not port.is_editor),
        attached_here=any(connection.state == Connection.CONNECTED for connection in mine),
        stop=stop,
        cpu=used.cpu if used else None,
        memory=used.memory if used else None,
        allocator=_allocator(used.allocator) if used and used.allocator else None,
        gpus=used.gpus if used else (),
    )


def _latest(connections: Sequence[Connection]) -> StopReport | None:
    """Return the latest stop; a process and each of its children have separate connections, each with its own stop."""
    stops = [connection.stop for connection in connections if connection.stop is not None]
    return max(stops, key=lambda stop: stop.since, default=None)
