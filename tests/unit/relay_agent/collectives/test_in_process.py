"""Facts about the answer of a job, and about a job that nobody asks."""

import importlib.util

import pytest

from tests.support.jobs.processes import run_job

pytestmark = pytest.mark.job


async def test_job_that_nobody_asks() -> None:
    """Nothing of this is imported before the first request."""
    code = """\
        import sys
        import relay_agent.debuggee.process, relay_agent.node.in_job.client
        print([name for name in sys.modules if "collectives" in name])
    """
    assert (0, ["[]"], "") == await run_job(code)


async def test_job_without_torch() -> None:
    """A job without torch answers with its main thread."""
    code = """\
        import threading
        from relay_agent.collectives.in_process import collect

        def answer():
            found = collect()
            print(found.problem, len(found.stacks.threads), found.stacks.threads[0].frames[0].function)

        helper = threading.Thread(target=answer)
        helper.start()
        helper.join()
    """
    assert (0, ["torch is not imported 1 <module>"], "") == await run_job(code)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
async def test_full_recorder() -> None:
    """The answer about a recorder with thousands of operations is short, and takes little processor time."""
    code = """\
        import json
        import time
        import torch
        import torch.distributed as dist
        from relay_agent.collectives.in_process import collect
        from relay_core.records import encode

        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        for _ in range(2500):
            dist.all_reduce(torch.ones(16))
        collect()
        started = time.thread_time()
        found = collect()
        assert time.thread_time() - started < 0.5
        (group,) = found.groups
        print(group.enqueued, group.completed, group.ranks, len(json.dumps(encode(found))) < 2000)
        dist.destroy_process_group()
    """
    status, lines, _ = await run_job(code)
    assert (0, ["2500 2500 (0,) True"]) == (status, lines)
