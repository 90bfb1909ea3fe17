"""Time to find out which user has connected to a local port, on a machine with a thousand and more connections.

Each accepted connection costs this once. "table" reads `/proc/net/tcp`, which lists every socket; "looked up" asks the
kernel for the one connection, as programs do where they can (`relay_core.socket_tables`).
"""

from __future__ import annotations

import socket
import time

from relay_core.socket_tables import PROC_NET, SocketTables
from tests.bench.programs import holding
from tests.bench.report import Row, median_ms
from tests.bench.stage import Stage

__all__ = ["ownership"]

COUNTS = (0, 500, 2000)
"""Connections that are open meanwhile; each has two rows in the table, because both ends are on this machine."""


async def ownership(stage: Stage, *, quick: bool) -> list[Row]:
    """Both ways take turns."""
    rows = []
    ways = {"table": SocketTables(PROC_NET), "looked up": SocketTables()}
    for count in COUNTS:
        times: dict[str, list[float]] = {name: [] for name in ways}
        async with holding(stage.target_port, count):
            for _ in range(20 if quick else 200):
                for name, tables in ways.items():
                    times[name].append(_check(tables))
        medians = {name: median_ms(seconds) for name, seconds in times.items()}
        rows.append(Row("who has connected", f"with {count} connections open", "ms", medians))
    return rows


def _check(tables: SocketTables) -> float:
    """Return the seconds of one check of a new connection."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        connection, peer = server.accept()
        with connection:
            started = time.perf_counter()
            tables.peer_owner(connection.getsockname(), peer)
            return time.perf_counter() - started
