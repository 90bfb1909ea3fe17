"""Two hundred agents with eight targets each behind one client, run by `make soak`; SOAK_AGENTS for fewer or more.

Azure allows 25 listeners on one hybrid connection; here the relay's quota is raised, because the agents and the client
are under test, not the quota.
"""

import asyncio
import contextlib
import gc
import logging
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from relay_client.agents.tunnels import Tunnels
from relay_client.ports.forwarder import Forwarder
from relay_server.config.model import Limits
from tests.support.network.fleet import Node, Process, agent, process, tunnels, who_serves
from tests.support.network.relay import LocalRelay, local_relay

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

AGENTS = int(os.environ.get("SOAK_AGENTS", "200"))
TARGETS = 8
LEAVING = AGENTS // 10
"""Agents that leave and are replaced while the client watches."""
FIRST_PORT = 20_000
"""Of the logical ports, which no socket uses."""
TASKS_MARGIN, DESCRIPTORS_MARGIN = 2, 8


@pytest.fixture
async def large_relay(tmp_path: Path) -> AsyncIterator[LocalRelay]:
    """A relay with room for all of them."""
    async with local_relay(tmp_path / "tls", limits=Limits(max_listeners=AGENTS + 50)) as relay:
        yield relay


def node(number: int, served: Process) -> Node:
    """Return the provider of an agent with eight ranks, of which the first is a process that answers."""
    first = number * TARGETS
    others = [Process(FIRST_PORT + first + n, 1, rank=first + n, script="train.py") for n in range(1, TARGETS)]
    served.fields |= {"rank": first, "script": "train.py"}
    return Node(served, *others, host=f"node-{number}", node_rank=number)


def ranks_of(client: Tunnels) -> set[int]:
    return {claim.target.rank for claim in client.reachable_targets() if claim.target.rank is not None}


async def until_ranks(client: Tunnels, expected: set[int]) -> None:
    """Wait until the client knows these ranks and no others."""
    while ranks_of(client) != expected:
        await asyncio.sleep(0.1)


async def test_two_hundred_agents(large_relay: LocalRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are found, each port reaches its own process, some leave and return, and nothing is left at the end."""
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)  # pytest keeps every record in memory
    tasks, descriptors = len(asyncio.all_tasks()), psutil.Process().num_fds()
    everything = set(range(AGENTS * TARGETS))
    async with contextlib.AsyncExitStack() as stack:
        running = []
        started = time.monotonic()
        for number in range(AGENTS):
            life = await stack.enter_async_context(contextlib.AsyncExitStack())
            logical = FIRST_PORT + number * TARGETS
            served = await life.enter_async_context(process(logical, f"rank {number * TARGETS}"))
            await life.enter_async_context(agent(large_relay, node(number, served)))
            running.append(life)
        print(f"\n{AGENTS} agents listening after {time.monotonic() - started:.1f} s")

        started = time.monotonic()
        client = await stack.enter_async_context(tunnels(large_relay))
        await client.discover_all()
        await until_ranks(client, everything)
        memory = psutil.Process().memory_info().rss
        print(f"{len(everything)} ranks found after {time.monotonic() - started:.1f} s, {memory >> 20} MiB in all")

        for number in (0, AGENTS // 2, AGENTS - 1):
            logical = FIRST_PORT + number * TARGETS
            async with Forwarder(client, [logical]):
                assert f"rank {number * TARGETS}" == await who_serves(logical)

        for life in running[:LEAVING]:
            await life.aclose()
        await until_ranks(client, set(range(LEAVING * TARGETS, AGENTS * TARGETS)))
        for number in range(LEAVING):
            logical = FIRST_PORT + number * TARGETS
            served = await stack.enter_async_context(process(logical, f"rank {number * TARGETS}"))
            await stack.enter_async_context(agent(large_relay, node(number, served)))
        started = time.monotonic()
        await client.discover_all()
        await until_ranks(client, everything)
        print(f"{LEAVING} agents left and were found again after {time.monotonic() - started:.1f} s")
    gc.collect()
    await asyncio.sleep(1)
    left = len(asyncio.all_tasks()) - tasks, psutil.Process().num_fds() - descriptors
    print(f"left: {left[0]} tasks, {left[1]} descriptors")
    assert left[0] <= TASKS_MARGIN
    assert left[1] <= DESCRIPTORS_MARGIN
