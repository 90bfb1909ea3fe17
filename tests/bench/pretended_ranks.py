"""Agents with pretended ranks of a job that hangs; prints "listening" when all of them do.

python -m tests.bench.pretended_ranks RANKS CONNECTION_FILE CA_FILE
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from relay_agent.agent.agent import Agent
from relay_core.agent_api.collectives import GroupRecord, Operation, ProcessCollectives
from relay_core.agent_api.stacks import Frame, ProcessStacks, ThreadStack
from relay_core.auth.sas_credentials import SasKeyCredential
from relay_core.hyco.address import Endpoint
from relay_core.hyco.connection_string import ConnectionString
from relay_core.net.relay_tls import client_tls
from tests.bench.stage import HC
from tests.support.network.fleet import Node, Process

RANKS_PER_AGENT = 4
BASE_PORT = 5678


def access_of(connection_file: str) -> tuple[Endpoint, SasKeyCredential, bytes | None]:
    """Return what a file with a connection string gives access to."""
    found = ConnectionString.parse(Path(connection_file).read_text())
    credential = SasKeyCredential(found.key_name or "", found.key or "")
    return Endpoint(found.host, found.port, found.entity_path or HC), credential, found.tunnel_key


def collectives_of(rank: int, ranks: int) -> ProcessCollectives:
    """Return what a rank reports; the last one has not entered the operation in which all others wait."""
    last = rank == ranks - 1
    tensor = rank // 8 * 8
    groups = (
        _group("0", "default_pg", range(ranks), 100 if last else 101),
        _group("1", "data", range(rank % 8, ranks, 8), 200),
        _group("2", "tensor", range(tensor, min(tensor + 8, ranks)), 800),
        _group("3", "pipeline", range(rank % 4, ranks, 4), 400),
    )
    library = [Frame(f"/venv/lib/python3.11/site-packages/torch/nn/module_{n}.py", n, "forward") for n in range(28)]
    own = Frame("/job/loader.py", 88, "load_batch") if last else Frame("/job/train.py", 61, "step")
    frames = (Frame("/job/train.py", 120, "<module>"), *library, own)
    stacks = ProcessStacks("helper thread", (ThreadStack("MainThread", 1, True, frames),))
    return ProcessCollectives(rank, groups, "", "blocked", stacks)


def _group(name: str, description: str, members: range, entered: int) -> GroupRecord:
    text = "[4096, 4096] bfloat16"
    operations = tuple(
        Operation(number, "all_reduce", text, 12.0 + 101 - number) for number in range(entered - 7, entered + 1)
    )
    completed = 100 if description == "default_pg" else entered
    return GroupRecord(name, description, "nccl", tuple(members), entered, completed, operations)


async def _run(ranks: int, connection_file: str, ca_file: str) -> None:
    endpoint, credential, tunnel_key = access_of(connection_file)
    agents, listening = [], []
    for first in range(0, ranks, RANKS_PER_AGENT):
        own = range(first, first + RANKS_PER_AGENT)
        node = Node(*(Process(BASE_PORT + rank, 1, rank=rank, world=ranks, script="train.py") for rank in own))
        node.collectives = [collectives_of(rank, ranks) for rank in own]
        up = asyncio.Event()
        listening.append(up.wait())
        tls = client_tls(ca_file)
        agents.append(Agent(endpoint, credential, node, tunnel_key=tunnel_key, tls=tls, on_listening=up.set).run())

    async def announce() -> None:
        await asyncio.gather(*listening)
        print("listening", flush=True)

    await asyncio.gather(announce(), *agents)


if __name__ == "__main__":
    asyncio.run(_run(int(sys.argv[1]), *sys.argv[2:]))
