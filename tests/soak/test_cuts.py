"""The long proof: 10,000 seeded cuts over real sockets, run by `make soak`; SOAK_CUTS and SOAK_SEED change it."""

import asyncio
import contextlib
import gc
import logging
import os
import time

import psutil
import pytest

from relay_core.net.tasks import TaskSet
from tests.support.network.chaos import CutSchedule
from tests.support.network.relay import LocalRelay
from tests.support.network.tunnel import EchoClient, TunnelPath, echo_client, tunnelled

pytestmark = [pytest.mark.soak, pytest.mark.timeout(5400)]

CUTS = int(os.environ.get("SOAK_CUTS", "10000"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
WARM_UP = 500
"""Cuts before the first measurement: caches, pools and the allocator's arenas have their size then."""
MEMORY_MARGIN = 24 << 20
"""Bytes that the resident size may differ: it goes up and down by ten MiB between looks, with OpenSSL's buffers."""
OBJECT_MARGIN = 500
"""Python objects that may be more: one leaked object per cut would be twenty times as many."""


async def hurry(path: TunnelPath) -> None:
    """Keep the tunnel from waiting between attempts: backoff is not what is tested here."""
    while True:
        await asyncio.sleep(0.005)
        path.tunnels.hurry()


async def settled() -> tuple[int, int, int]:
    """Return open descriptors, resident bytes and Python objects of this process, once nothing is on its way."""
    await asyncio.sleep(1.0)
    gc.collect()
    process = psutil.Process()
    return process.num_fds(), process.memory_info().rss, len(gc.get_objects())


async def test_ten_thousand_cuts_lose_nothing(
    relay: LocalRelay, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No byte is lost or doubled, and memory and descriptors are the same at the end as at the start."""
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)  # pytest keeps every record in memory
    started = time.monotonic()
    async with tunnelled(relay, seed=SEED) as path, TaskSet() as tasks, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(echo_client(path.port, SEED + n)) for n in range(3)]

        async def exchange_until(client: EchoClient, connections: int) -> None:
            while path.chaos.connections < connections:
                await client.exchange(50_000)

        async def cut(connections: int) -> tuple[int, int, int]:
            schedule = CutSchedule(path.chaos, seed=SEED + connections)
            path.chaos.cut()
            await asyncio.gather(*(exchange_until(client, connections) for client in clients))
            schedule.stop()
            await asyncio.gather(*(client.exchange(50_000) for client in clients))
            return await settled()

        tasks.spawn(hurry(path), name="hurry")
        files_before, memory_before, objects_before = await cut(WARM_UP)
        files_after, memory_after, objects_after = await cut(WARM_UP + CUTS)
        carried = sum(client.bytes for client in clients)
    with capfd.disabled():
        print(
            f"\n{CUTS} cuts, seed {SEED}: {carried:,} bytes each way, 0 lost, 0 doubled; "
            f"descriptors {files_before} -> {files_after}, memory {memory_before >> 20} -> {memory_after >> 20} MiB, "
            f"objects {objects_before} -> {objects_after}, {time.monotonic() - started:.0f} s"
        )
    assert abs(files_after - files_before) <= 1
    assert memory_after - memory_before < MEMORY_MARGIN
    assert objects_after - objects_before < OBJECT_MARGIN
