"""A rank that is held, and its peer that waits for it in a collective operation of the real torch."""

import asyncio
import contextlib
import importlib.util
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.support.jobs.processes import Job, job, run_job
from tests.support.machine.ports import free_port

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch: make extras")

TIMEOUT = 2.0
"""Seconds that the job's own code allows its peers."""
HELD = 2 * TIMEOUT
"""Seconds at a breakpoint: here the passing of time is the subject."""

RANK = """
    import sys
    from datetime import timedelta
    if sys.argv[2] == "raised":
        from relay_agent.job.collective_timeouts import raise_timeouts
        raise_timeouts()
    import torch
    import torch.distributed as dist
    print("imported", flush=True)
    input()
    dist.init_process_group("gloo", timeout=timedelta(seconds=float(sys.argv[1])))
    print("joined", flush=True)
    input()
    total = torch.ones(1)
    dist.all_reduce(total)
    print(total.item(), flush=True)
    dist.destroy_process_group()
"""
"""Each `input()` is a place where a debugger may hold it."""


@contextlib.asynccontextmanager
async def two_ranks(timeouts: str) -> AsyncIterator[list[Job]]:
    """Start them and wait until they have imported torch, which takes its time."""
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    async with AsyncExitStack() as stack:
        jobs = [
            await stack.enter_async_context(job(RANK, str(TIMEOUT), timeouts, **common, RANK=rank)) for rank in "01"
        ]
        for rank in jobs:
            assert await rank.line() == "imported"
        yield jobs


def let_go(rank: Job) -> None:
    assert rank.process.stdin is not None
    rank.process.stdin.write(b"\n")


async def test_without_raised_timeouts_a_held_rank_ends_its_peer():
    """This is what the job's own timeout does."""
    async with two_ranks("as they are") as (peer, held):
        let_go(peer)
        let_go(held)
        assert await peer.line() == "joined"
        assert await held.line() == "joined"
        status, out, err = await peer.finish()
        assert (1, []) == (status, out)
        assert "Timed out" in err
        assert f"{TIMEOUT * 1000:.0f}ms" in err


async def test_with_raised_timeouts_the_job_survives_a_held_rank():
    """Held before it joins the group, and again before the collective operation."""
    async with two_ranks("raised") as (peer, held):
        let_go(peer)
        await asyncio.sleep(HELD)
        let_go(held)
        assert await held.line() == "joined"
        assert await peer.line() == "joined"
        let_go(peer)
        await asyncio.sleep(HELD)
        for rank in held, peer:
            assert (0, ["2.0"]) == (await rank.finish())[:2]


RAISE = "from relay_agent.job.collective_timeouts import raise_timeouts; raise_timeouts(7200)\n"
SHOW = """
from datetime import timedelta
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

def show(group):
    backends = {group._get_backend(device).options._timeout for device in group._device_types}
    print(*(f"{value.total_seconds():.0f}" for value in (*backends, c10d._world.pg_map[group][1].timeout)))
"""
"""Prints the seconds of a group, and of its store."""


async def run_alone(code: str) -> tuple[int, list[str], str]:
    """Run a job of one rank."""
    return await run_job(code, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), WORLD_SIZE="1", RANK="0")


async def test_every_way_to_a_process_group_gets_the_timeout():
    """Default and explicit, of the whole job and of a part of it, and changed later; a longer one stays."""
    code = """
dist.init_process_group("gloo")
show(dist.group.WORLD)
show(dist.new_group([0], timeout=timedelta(seconds=3)))
show(dist.new_group([0], timeout=timedelta(days=3)))
c10d._set_pg_timeout(timedelta(seconds=3), dist.group.WORLD)
show(dist.group.WORLD)
dist.destroy_process_group()
"""
    status, out, err = await run_alone(RAISE + SHOW + code)
    assert (0, ["7200 7200", "7200 7200", "259200 7200", "7200 7200"], "") == (status, out, err)


async def test_groups_that_exist_already_are_raised():
    """The call may come after torch; what torch.distributed has handed out is changed too."""
    before = """
dist.init_process_group("gloo", timeout=timedelta(seconds=3))
show(dist.group.WORLD)
"""
    after = """
show(dist.group.WORLD)
print(dist.barrier is c10d.barrier, hasattr(dist.monitored_barrier, "__wrapped__"))
dist.destroy_process_group()
"""
    status, out, err = await run_alone(SHOW + before + RAISE + after)
    assert (0, ["3 3", "7200 7200", "True True"], "") == (status, out, err)


async def test_timeouts_of_a_hold_are_restored():
    """Of groups that existed before the hold, that it found being created, and that the job changed in the meantime."""
    code = (
        """
import threading
from relay_agent.job.collective_timeouts import prepare_for_holds, raise_while_held
prepare_for_holds()
"""
        + SHOW
        + """
def hold(is_held):
    thread = threading.Thread(target=raise_while_held, kwargs={"is_held": is_held})
    thread.start()
    thread.join()

barrier = dist.barrier
dist.init_process_group("gloo", timeout=timedelta(seconds=3))
changed = dist.new_group([0], timeout=timedelta(seconds=4))
print(dist.barrier is barrier)
hold(True)
later = [dist.new_group([0], timeout=timedelta(seconds=seconds)) for seconds in (5, 259200)]
default = dist.new_group([0])
c10d._set_pg_timeout(timedelta(seconds=6), changed)
groups = [dist.group.WORLD, changed, *later, default]
for is_held in True, False:
    hold(is_held)
    print("held" if is_held else "free")
    for group in groups:
        show(group)
dist.destroy_process_group()
"""
    )
    status, out, err = await run_alone(code)
    held = ["86400 86400", "86400 86400", "86400 86400", "259200 86400", "86400 86400"]
    free = ["3 3", "6 3", "5 3", "259200 3", "1800 3"]
    assert (0, ["True", "held", *held, "free", *free], "") == (status, out, err)


async def test_backends_without_a_timeout_are_left_as_they_are():
    """A hold causes no warning about groups whose backend has no timeout."""
    code = """
from relay_agent.job.collective_timeouts import prepare_for_holds, raise_while_held
prepare_for_holds()
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
for is_held in True, False:
    raise_while_held(is_held=is_held)
    dist.new_group([0])
print("done")
"""
    assert (0, ["done"], "") == await run_alone(code)
