"""Agents with pretended ranks of a job that runs; prints "true" when all of them listen.

python -m tests.bench.changing_ranks RANKS RANKS_PER_AGENT CONNECTION_FILE CA_FILE

Each line on stdin is a number: from then on, so many times in a second a rank announces another state. At the line
"crash", all ranks crash together.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import time

from relay_agent.agent.agent import Agent
from relay_core.net.relay_tls import client_tls
from tests.bench.pretended_ranks import BASE_PORT, access_of
from tests.support.network.fleet import Node, Process

__all__: list[str] = []


async def _run(ranks: int, per_agent: int, connection_file: str, ca_file: str) -> None:
    endpoint, credential, tunnel_key = access_of(connection_file)
    tls, agents, listening, nodes = client_tls(ca_file), [], [], []
    for number, first in enumerate(range(0, ranks, per_agent)):
        own = range(first, first + per_agent)
        node = Node(*(_running(rank, ranks) for rank in own), host=f"node-{number}", node_rank=number)
        up = asyncio.Event()
        nodes.append(node)
        listening.append(up.wait())
        agent = Agent(endpoint, credential, node, tunnel_key=tunnel_key, tls=tls, on_listening=up.set)
        node.publish = agent.publish
        agents.append(agent.run())
    await asyncio.gather(_converse(nodes, per_agent, listening), *agents)


def _running(rank: int, ranks: int) -> Process:
    since = time.time()
    return Process(BASE_PORT + rank, 1, rank=rank, world=ranks, script="train.py", state="running", since=since)


async def _converse(nodes: list[Node], per_agent: int, listening: list[asyncio.Future[None]]) -> None:
    await asyncio.gather(*listening)
    changing: asyncio.Task[None] | None = None
    print("true", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        if changing:
            changing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await changing
        if line.strip() == "crash":
            for node in nodes:
                for port in node.processes:
                    node.change(port, state="crashed", detail="RuntimeError: a collective operation has failed")
            print("true", flush=True)
            continue
        changing = asyncio.create_task(_change(nodes, per_agent, float(line)))
        print("true", flush=True)


async def _change(nodes: list[Node], per_agent: int, rate: float) -> None:
    for number in itertools.count() if rate else ():
        turn, rank = divmod(number, per_agent * len(nodes))
        nodes[rank // per_agent].change(BASE_PORT + rank, state="running" if turn % 2 else "waiting", since=time.time())
        await asyncio.sleep(1 / rate)


if __name__ == "__main__":
    asyncio.run(_run(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
