"""Time until the first byte of a new session, from the first dial on, with and without the service's slow tail.

Each session is new: a search for the agent, a session with it, and a connection to the target. With the
profile `azure-tail`, the relay holds some of the dials for seconds, and never answers others.
"""

from __future__ import annotations

import statistics
import time

from relay_client.agents.tunnels import Tunnels
from relay_core.auth import credential_from_connection_string, find_connection_string
from relay_core.net.relay_tls import client_tls
from tests.bench.report import Limit, Row
from tests.bench.stage import Stage
from tests.support.machine.ports import free_port

__all__ = ["first_byte"]

WORST = 2.0
"""Seconds."""


async def first_byte(stage: Stage, *, quick: bool) -> list[Row]:
    """The sessions of both relays take turns."""
    slow = Stage(stage.programs, delays=stage.delays)
    slow.relay = await stage.start_relay(profile="azure-tail")
    slow.target_port = stage.target_port
    stages = {"usual": stage, "slow tail": slow}
    ports = {name: free_port() for name in stages}
    agents = [await each.start_agent({ports[name]: each.target_port}) for name, each in stages.items()]
    times: dict[str, list[float]] = {name: [] for name in stages}
    for _ in range(12 if quick else 40):
        for name, each in stages.items():
            times[name].append(await _first_byte(each, ports[name]))
    for child in (*agents, slow.relay.child):
        await stage.programs.end(child)
    what = f"{len(times['usual'])} new sessions until their first byte"
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    worst = {name: max(seconds) for name, seconds in times.items()}
    limits = {"slow tail": Limit(WORST)}
    return [
        Row(what, "median", "s", medians, detail={"seconds": times}),
        Row(what, "worst", "s", worst, limits=limits),
    ]


async def _first_byte(stage: Stage, port: int) -> float:
    found = find_connection_string(file=stage.relay.connection_file("client"))
    credential, tls = credential_from_connection_string(found), client_tls(stage.relay.ca_file)
    started = time.monotonic()
    async with Tunnels(found.endpoint(), credential, tls, tunnel_key=found.tunnel_key) as tunnels:
        await tunnels.discover()
        stream = await tunnels.open(port)
        await stream.write(b"E.")
        assert b"." == await stream.read()
        seconds = time.monotonic() - started
        await stream.write_eof()
    return seconds
