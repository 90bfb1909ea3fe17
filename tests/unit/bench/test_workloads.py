"""Facts about the job that benchmarks measure."""

import asyncio

import pytest

from relay_client.dap import DapClient
from tests.bench.programs import Programs
from tests.bench.workloads import ABSENT, ATTACHED, LISTENING
from tests.support.machine.deadline import DEADLINE


@pytest.mark.parametrize("work", ["tight_loop", "tiny_calls"])
@pytest.mark.parametrize("preparation", ["nothing", "no_debug_run"])
async def test_a_job_that_nobody_debugs(tmp_path, work, preparation):
    """It reports that it is ready, works as often as requested, and has not even imported debugpy."""
    async with Programs(tmp_path) as programs, programs.talking("tests.bench.workloads", work, preparation) as job:
        assert "ready" == await job.receive()
        assert 0 < await job.ask(1000)
        assert ABSENT == await job.ask("state")


async def test_a_job_that_is_debugged(tmp_path):
    """It reports whether a debugger is attached, even while its main thread is in a loop that makes no call."""
    async with Programs(tmp_path) as programs, programs.talking("tests.bench.workloads", "without_calls", "arm") as job:
        port = await job.receive()
        assert "ready" == await job.receive()
        assert LISTENING == await job.ask("state")
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            await client.attach({}, within=DEADLINE)
            assert ATTACHED == await job.ask("state")
            assert 0 < await job.ask(1000)


async def test_a_job_that_ends_early(tmp_path):
    """The benchmark ends with the last output of the job."""
    async with (
        Programs(tmp_path) as programs,
        programs.talking("tests.bench.workloads", "no such work", "nothing") as job,
    ):
        with pytest.raises(RuntimeError, match="no such work"):
            await asyncio.wait_for(job.receive(), DEADLINE)
