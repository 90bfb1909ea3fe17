"""Facts about the job that benchmarks measure."""

import asyncio

import pytest

from tests.bench.programs import Programs
from tests.bench.workloads import ABSENT
from tests.support.deadline import DEADLINE


@pytest.mark.parametrize("work", ["tight_loop", "tiny_calls"])
@pytest.mark.parametrize("preparation", ["nothing", "no_debug_run"])
async def test_a_job_that_nobody_debugs(tmp_path, work, preparation):
    """It says that it is ready, works as often as it is told, and has not even imported debugpy."""
    async with Programs(tmp_path) as programs, programs.talking("tests.bench.workloads", work, preparation) as job:
        assert "ready" == await job.hear()
        assert 0 < await job.ask(1000) < 1
        assert ABSENT == await job.ask("state")


async def test_a_job_that_ends_early(tmp_path):
    """The benchmark ends with what the job has said last."""
    async with (
        Programs(tmp_path) as programs,
        programs.talking("tests.bench.workloads", "no such work", "nothing") as job,
    ):
        with pytest.raises(RuntimeError, match="no such work"):
            await asyncio.wait_for(job.hear(), DEADLINE)
