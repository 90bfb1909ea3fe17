"""Agents of one job with pretended ranks, all in this process; prints "listening" when all of them do.

python -m tests.bench.many_agents AGENTS RANKS_PER_AGENT FIRST_PORT TARGET_PORT CONNECTION_FILE CA_FILE

Rank n has the logical port FIRST_PORT + n, which leads to TARGET_PORT.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from relay_agent.agent.agent import Agent
from relay_core.auth.sas_credentials import credential_from_connection_string
from relay_core.hyco.connection_string import ConnectionString
from relay_core.net.relay_tls import client_tls
from relay_core.program import run
from tests.support.network.fleet import Node, Process

__all__: list[str] = []


async def _run(count: int, per_agent: int, first: int, target: int, connection_file: str, ca_file: str) -> None:
    access = ConnectionString.parse(Path(connection_file).read_text())  # noqa: ASYNC240 - nothing else runs yet
    credential, tls = credential_from_connection_string(access), client_tls(ca_file)
    started, listening, agents, world = time.monotonic(), [], [], count * per_agent
    for number in range(count):
        up = asyncio.Event()
        listening.append(up.wait())
        own = range(number * per_agent, (number + 1) * per_agent)
        agent = Agent(
            access.endpoint(),
            credential,
            Node(*(Process(first + rank, target, rank=rank, world=world, state="running") for rank in own)),
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
    run.run(_run(*(int(text) for text in sys.argv[1:5]), *sys.argv[5:]))
