"""Agents with one target each, all in this process; prints "listening" when all of them do.

python -m tests.bench.many_agents COUNT FIRST_PORT TARGET_PORT CONNECTION_FILE CA_FILE

Agent n has the logical port FIRST_PORT + n, which leads to TARGET_PORT.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from relay_agent.agent.agent import Agent
from relay_agent.agent.port_targets import PortTarget
from relay_core.auth.sas_credentials import credential_from_connection_string
from relay_core.hyco.connection_string import ConnectionString
from relay_core.net.relay_tls import client_tls
from relay_core.program import run

__all__: list[str] = []


async def _run(count: int, first: int, target: int, connection_file: str, ca_file: str) -> None:
    access = ConnectionString.parse(Path(connection_file).read_text())  # noqa: ASYNC240 - nothing else runs yet
    credential, tls = credential_from_connection_string(access), client_tls(ca_file)
    started, listening, agents = time.monotonic(), [], []
    for port in range(first, first + count):
        up = asyncio.Event()
        listening.append(up.wait())
        agent = Agent(
            access.endpoint(),
            credential,
            {port: PortTarget(port, target)},
            tunnel_key=access.tunnel_key,
            tls=tls,
            on_listening=up.set,
        )
        agents.append(agent.run())

    async def announce() -> None:
        await asyncio.gather(*listening)
        print(f"listening after {time.monotonic() - started:.1f} s", flush=True)

    await asyncio.gather(announce(), *agents)


if __name__ == "__main__":
    run.run(_run(*(int(text) for text in sys.argv[1:4]), *sys.argv[4:]))
