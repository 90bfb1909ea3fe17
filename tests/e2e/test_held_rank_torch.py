"""Facts about a rank that is held while its peer waits for it: two nodes with one gloo rank each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from relay_client.agents.tunnels import Tunnels
from relay_client.dap import DapClient
from relay_client.ports.forwarder import Forwarder
from relay_core.compat import timeout
from tests.support.jobs.processes import gone
from tests.support.jobs.torch_job import TorchJob, needs_torch, torch_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import consecutive_ports
from tests.support.network.relay import LocalRelay

pytestmark = [pytest.mark.e2e, needs_torch, pytest.mark.usefixtures("torch_import")]

TIMEOUT = 4.0
"""Seconds for which the job's own code lets its ranks wait for each other."""
HELD = 1.5 * TIMEOUT
"""Seconds at a breakpoint: here the passing of time is the subject."""
SCRIPT = f"""\
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

import relay_agent


def train(rank):
    total = torch.zeros(1)
    while not total:
        total = torch.tensor([float(os.path.exists("stop"))])
        dist.all_reduce(total)
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        store = c10d._world.pg_map[dist.group.WORLD][1]
        with open("timeouts-new", "w") if rank == 0 else open(os.devnull, "w") as file:
            file.write(f"{{backend.options._timeout.total_seconds():.0f}} {{store.timeout.total_seconds():.0f}}")
        if rank == 0:
            os.replace("timeouts-new", "timeouts")
        time.sleep(0.02)  # each step


if __name__ == "__main__":
    torch.set_num_threads(1)
    relay_agent.start_remote_debugging_from_args()
    dist.init_process_group("gloo", timeout=timedelta(seconds={TIMEOUT}))
    train(dist.get_rank())
    dist.destroy_process_group()
"""
STEP = next(number for number, line in enumerate(SCRIPT.splitlines(), start=1) if line.endswith("# each step"))
OWN, RAISED = f"{TIMEOUT:.0f} {TIMEOUT:.0f}", "86400 86400"


async def until_timeouts(job: TorchJob, wanted: str) -> None:
    """Wait until the peer's group and store have these timeouts."""
    async with timeout(DEADLINE):
        while not (file := job.directory / "timeouts").exists() or file.read_text() != wanted:
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def held_rank(relay: LocalRelay, job: TorchJob, port: int) -> AsyncIterator[tuple[DapClient, int]]:
    """Attach to rank 1 when the client has found both nodes, and stop it at a breakpoint; yield session and thread."""
    async with (
        Tunnels(relay.endpoint, relay.sender, relay.tls) as tunnels,
        Forwarder(tunnels, [port + 1]),
    ):
        tunnels.keep_searching()
        async with timeout(DEADLINE):
            while tunnels.roster.ports() != (port, port + 1):
                await tunnels.search.changed.wait()
        await until_timeouts(job, OWN)
        async with await DapClient.connect("127.0.0.1", port + 1, within=DEADLINE) as session:
            await session.attach({str(job.script): [{"line": STEP}]}, within=DEADLINE)
            event = await session.wait_for_event("stopped", within=DEADLINE)
            yield session, event["body"]["threadId"]


async def shown(session: DapClient, text: str) -> None:
    """Wait until the debug console shows a text."""
    await session.wait_for_event("output", matching=lambda body: text in str(body["output"]), within=DEADLINE)


async def test_job_survives_a_held_rank(relay: LocalRelay, tmp_path: Path) -> None:
    """A rank may be held for longer than its peer on another node would wait; only a hold changes the timeouts."""
    port = consecutive_ports(2)[0]
    arguments = ["--debug-ranks", "none"]
    async with (
        torch_job(relay, tmp_path, port, *arguments, ranks=2, source=SCRIPT, forked=True) as job,
        held_rank(relay, job, port) as (session, thread),
    ):
        await asyncio.sleep(HELD)
        await session.set_breakpoints(str(job.script), [], within=DEADLINE)
        await session.request("continue", {"threadId": thread}, within=DEADLINE)
        await until_timeouts(job, RAISED)
        await session.close()
        await until_timeouts(job, OWN)
        job.stop()
        assert [0, 0] == await job.finish()


async def test_without_raised_timeouts_a_held_rank_ends_its_peer(relay: LocalRelay, tmp_path: Path) -> None:
    """With `--debug-timeouts off`, the peer fails at the timeout of its group, of which the debug console warns."""
    port = consecutive_ports(2)[0]
    arguments = ["--debug-ranks", "none", "--debug-timeouts", "off"]
    async with (
        torch_job(relay, tmp_path, port, *arguments, ranks=2, source=SCRIPT, forked=True) as job,
        held_rank(relay, job, port) as (session, _thread),
    ):
        for text in "wait at most 4 s", "wait 1 s more", "have waited 4 s":
            await shown(session, f"the other ranks {text} for rank 1")
        assert await gone(job.launchers[0].pid)
        assert f"Timed out waiting {TIMEOUT * 1000:.0f}ms" in (tmp_path / "log-0").read_text()
