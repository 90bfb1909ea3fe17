"""Builds, from the tunnels and the open ports, the state that other programs see. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence

from relay_client.agents.tunnels import Tunnels
from relay_client.control.state import ClientId, Port, Status
from relay_client.ports.forwarder import Forwarder
from relay_client.ports.local_port import LocalPort
from relay_client.ranks.record import Connection, Local
from relay_core.grouping import by_key


def take_snapshot(client: ClientId, tunnels: Tunnels, forwarder: Forwarder, on_demand: Sequence[int] = ()) -> Status:
    """Return the current state.

    Args:
        client: Identity of this relay-client.
        tunnels: Its tunnels.
        forwarder: Its open ports.
        on_demand: The local ports that requests have opened.
    """
    ports = tuple(
        [port_record(local, is_on_demand=local.port in on_demand) for local in forwarder.ports]
        + [port_record(local, is_editor=True) for local in forwarder.editor_ports]
    )
    connections = tuple(record.describe() for record in forwarder.connections)
    leading = by_key((port.remote_port, port) for port in ports if not port.is_forward)

    def local(remote_port: int) -> Local:
        """Return what the connections to the target with a logical port show about it."""
        leads = leading.get(remote_port, ())
        numbers = {port.port for port in leads}
        mine = [each for each in connections if each.port in numbers or each.remote_port == remote_port]
        # A process and each of its children have separate connections, each with its own stop.
        stops = [connection.stop for connection in mine if connection.stop is not None]
        return Local(
            tuple(port.port for port in leads if not port.is_editor),
            any(connection.state == Connection.CONNECTED for connection in mine),
            max(stops, key=lambda stop: stop.since, default=None),
        )

    return Status(client, time.time(), tunnels.nodes(local), ports, connections)


def port_record(local: LocalPort, *, is_on_demand: bool = False, is_editor: bool = False) -> Port:
    """Return a local port as other programs see it."""
    to = local.destination
    return Port(local.port, to.port, to.is_forward, to.node_rank, is_on_demand, to.is_all_ranks, is_editor)
