"""Facts about `relay-client hang` and `push` with NCCL: real jobs of two ranks that share one GPU."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.jobs.hang_job import hang_job, line_of
from tests.support.jobs.push_job import push_between_steps
from tests.support.machine.deadline import until
from tests.support.machine.gpu import needs_gpu
from tests.support.machine.ports import free_port
from tests.support.network.relay import LocalRelay

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
    dist.all_reduce(x)  # skip: calls
    torch.cuda.synchronize()  # skip: waits


def operation():
    if rank == 1:
        dist.broadcast(x, 1)  # operation: odd
        time.sleep(1000)
    dist.all_reduce(x)  # operation: all
    torch.cuda.synchronize()


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
    dist.all_reduce(x)  # dead: all
    torch.cuda.synchronize()


def well():
    while True:
        dist.all_reduce(x)
        torch.cuda.synchronize()
        time.sleep(0.01)


def until(name):
    while rank == 1 and not os.path.exists(name):
        time.sleep(0.05)  # until: elsewhere


def waits():
    until("first")
    dist.all_reduce(x)  # first: calls
    torch.cuda.synchronize()
    until("kind")
    dist.all_gather_into_tensor(torch.empty(32, device="cuda:0"), x)  # kind: calls
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(x)
    until("graph")
    graph.replay()
    torch.cuda.synchronize()  # graph: waits
    while True:
        torch.cuda._sleep(4_000_000_000)  # two seconds
        dist.all_reduce(x)
        torch.cuda.synchronize()
        with open(f"slow-{rank}", "w"):
            pass


def step(number):
    dist.all_reduce(x)
    return f"{number} old"


def asynchronous():
    number = 0
    with open(f"steps-{rank}", "w", buffering=1) as log:
        while True:
            print(step(number), file=log)
            number += 1
            time.sleep(0.03 * rank)
            if number % 40 == 0:
                x.fill_(1).sum().item()


if __name__ == "__main__":
    relay_agent.start_remote_debugging_from_args()
    x = torch.ones(16, device="cuda:0")
    torch.optim.SGD([torch.nn.Parameter(x.clone())], lr=0.1)  # imports torch's compiler, as in most jobs
    if sys.argv[1] == "waits":
        dist.init_process_group("nccl")
    else:
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
        await job.verdict_that(f"at {at('skip: calls')}")  # its place is read once it has waited for a second
        status, text = await job.verdict_that("NCCL RAS: ")
    group, ras = text.split("\n\n")
    assert group.startswith(f"{WAITING} at {at('skip: calls')} (N s ago), now at {at('skip: waits')} (")
    assert group.endswith(f"; missing rank 1, which is at {at('skip: elsewhere')} (blocked in a call)")
    assert "AllReduce operations launched: 6 by rank 0 and 5 by rank 1" in ras
    assert status == 16


async def test_other_operation(relay: LocalRelay, tmp_path: Path) -> None:
    """Ranks that call different operations are named, with their operations."""
    async with job_of(relay, tmp_path, "operation") as job:
        await job.until_ready()
        status, text = await job.verdict_that(f"at {at('operation: odd')}")
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
    """A rank that was killed is missing, with the signal; what RAS answers about it is read."""
    async with job_of(relay, tmp_path, "dead") as job:
        await job.until_ready()
        await job.verdict_that("missing rank 1, which is at train.py")  # the agent knows it
        (tmp_path / "kill").touch()
        await job.verdict_that("missing rank 1, which was killed by SIGKILL")
        status, text = await job.verdict_that("NCCL RAS: ")
    assert f"{WAITING} at {at('dead: all')}" in text
    assert "cannot be parsed" not in text
    assert status == 16


async def test_job_that_runs_well(relay: LocalRelay, tmp_path: Path) -> None:
    """A job whose ranks meet all the time does not hang."""
    async with job_of(relay, tmp_path, "well") as job:
        await job.until_ready()
        for _ in range(3):
            status, text = await job.verdict()
            assert 0 == status, text


async def test_waits_that_the_recorder_does_not_show(
    relay: LocalRelay, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The first collective, the first of its kind and a replayed graph are named; a job with slow steps is spared."""
    async with job_of(relay, tmp_path, "waits") as job:
        await job.until_ready()
        status, text = await job.verdict_that("which torch has not recorded as waiting")
        assert f"rank 0 is in all_reduce at {at('first: calls')}, which torch has not" in text
        assert status == 16
        (tmp_path / "first").touch()
        status, text = await job.verdict_that(
            f"all_gather_into_tensor [16] float32; entered by rank 0 at {at('kind: calls')}"
        )
        assert "missing rank 1, which is at train.py" in text
        assert status == 16
        (tmp_path / "kind").touch()
        status, text = await job.verdict_that(f"waiting for the device in synchronize at {at('graph: waits')}")
        assert f"; rank 1 is at {at('until: elsewhere')}" in text
        assert status == 0
        (tmp_path / "graph").touch()
        await until((tmp_path / "slow-0").exists)
        found = [await job.verdict() for _ in range(4)]
    assert {0} == {status for status, _ in found}, found
    record_property("figure", "exit 16, 16, 0 and 4 of 4 looks at slow steps exit 0")


async def test_push_to_ranks_that_do_not_wait_for_each_other(
    relay: LocalRelay, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Ranks that read the device every 40 steps, one of them slower, receive new code at the same step."""
    async with job_of(relay, tmp_path, "asynchronous", "--debug-allow-edit"):
        fixed = SCRIPT.replace("{number} old", "{number} new")
        (first, *_), steps = await push_between_steps(relay, tmp_path, fixed, old=" old", new=" new", ranks=range(2))
    assert first.startswith("train.py: replaced in ranks 0-1 at the same step; ")
    assert steps[0] == steps[1]
    record_property("figure", f"step {steps[0]} in both ranks")
