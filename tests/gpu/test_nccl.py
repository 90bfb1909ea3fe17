"""Facts about `relay-client hang` with NCCL: real jobs of two ranks that share one GPU."""

from pathlib import Path

import pytest

from tests.support.gpu import needs_gpu
from tests.support.hang_job import hang_job, line_of
from tests.support.ports import free_port
from tests.support.relay import LocalRelay

pytestmark = [pytest.mark.e2e, needs_gpu, pytest.mark.usefixtures("torch_import")]

SCRIPT = """\
import os
import sys
import time

import torch
import torch.distributed as dist

import relay_agent

rank = int(os.environ["RANK"])
os.environ["NCCL_HOSTID"] = f"rank-{rank}"  # NCCL refuses two ranks of one host on one GPU
os.environ["NCCL_SOCKET_IFNAME"] = "lo"


def skip():
    if rank == 1:
        time.sleep(1000)  # skip: elsewhere
    dist.all_reduce(x)
    torch.cuda.synchronize()  # skip: all


def operation():
    if rank == 1:
        dist.broadcast(x, 1)
        time.sleep(1000)  # operation: odd
    dist.all_reduce(x)
    torch.cuda.synchronize()  # operation: all


def order():
    first, second = dist.new_group(group_desc="first"), dist.new_group(group_desc="second")
    for group in (first, second):  # makes their communicators
        dist.all_reduce(x, group=group)
    if rank == 1:
        first, second = second, first
    dist.all_reduce(x, group=first)
    torch.cuda.synchronize()  # order: all


def dead():
    while rank == 1:
        if os.path.exists("kill"):
            os.kill(os.getpid(), 9)
        time.sleep(0.05)  # dead: alive
    dist.all_reduce(x)
    torch.cuda.synchronize()  # dead: all


def well():
    while True:
        dist.all_reduce(x)
        torch.cuda.synchronize()
        time.sleep(0.01)


if __name__ == "__main__":
    relay_agent.start_remote_debugging_from_args()
    x = torch.ones(16, device="cuda:0")
    dist.init_process_group("nccl", device_id=torch.device("cuda:0"))
    for _ in range(5):
        dist.all_reduce(x)
    torch.cuda.synchronize()
    with open(f"ready-{rank}", "w"):
        pass
    globals()[sys.argv[1]]()
"""
OPERATION = "collective #6 all_reduce [16] float32"
WAITING = f"group 'default' (2 ranks): {OPERATION}; entered by rank 0"


def job_of(relay: LocalRelay, directory: Path, scenario: str, *arguments: str):
    """Run a job whose RAS has a port of its own."""
    address = f"localhost:{free_port()}"
    return hang_job(relay, directory, scenario, *arguments, ranks=2, source=SCRIPT, NCCL_RAS_ADDR=address)


def at(marker: str) -> str:
    return line_of(marker, SCRIPT)


async def test_skipped_collective(relay: LocalRelay, tmp_path: Path) -> None:
    """A rank that is elsewhere is named as missing, with its place; RAS counts the operations of both ranks."""
    async with job_of(relay, tmp_path, "skip") as job:
        await job.until_ready()
        status, text = await job.verdict_that("NCCL RAS: ")
    group, ras = text.split("\n\n")
    assert (
        f"{WAITING} at {at('skip: all')} (N s ago); "
        f"missing rank 1, which is at {at('skip: elsewhere')} (blocked in a call)"
    ) == group
    assert "AllReduce operations launched: 6 by rank 0 and 5 by rank 1" in ras
    assert status == 16


async def test_other_operation(relay: LocalRelay, tmp_path: Path) -> None:
    """Ranks that call different operations are named, with their operations."""
    async with job_of(relay, tmp_path, "operation") as job:
        await job.until_ready()
        status, text = await job.verdict_that("differs between ranks")
    assert text.startswith(
        "group 'default' (2 ranks): collective #6 differs between ranks: "
        f"rank 0 entered all_reduce [16] float32 at {at('operation: all')}, "
        f"rank 1 entered broadcast [16] float32 at {at('operation: odd')} (N s ago)"
    )
    assert status == 16


async def test_other_group_order(relay: LocalRelay, tmp_path: Path) -> None:
    """Two groups whose ranks call them in different orders are named as waiting for each other."""
    async with job_of(relay, tmp_path, "order") as job:
        await job.until_ready()
        status, text = await job.verdict_that("are waiting for each other")
    assert "group 'first' (ranks 0-1): collective #2 all_reduce [16] float32; entered by rank 0" in text
    assert "group 'second' (ranks 0-1): collective #2 all_reduce [16] float32; entered by rank 1" in text
    assert status == 16


async def test_dead_rank(relay: LocalRelay, tmp_path: Path) -> None:
    """A rank that was killed is missing, with the signal, from the collective that the other has entered."""
    async with job_of(relay, tmp_path, "dead") as job:
        await job.until_ready()
        await job.verdict_that("missing rank 1, which is at train.py")  # the agent knows it
        (tmp_path / "kill").touch()
        status, text = await job.verdict_that("missing rank 1, which was killed by SIGKILL")
    assert f"{WAITING} at {at('dead: all')}" in text
    assert status == 16


async def test_job_that_runs_well(relay: LocalRelay, tmp_path: Path) -> None:
    """A job whose ranks meet all the time does not hang."""
    async with job_of(relay, tmp_path, "well") as job:
        await job.until_ready()
        wanted = "no rank is waiting in a collective; run 'relay-client stacks' to see what each rank is doing"
        assert (0, wanted) == await job.verdict_that(wanted)
