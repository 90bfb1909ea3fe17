"""Facts about the training job that benchmarks measure."""

from pathlib import Path

import psutil

from tests.bench.programs import Programs
from tests.support.jobs.torch_job import needs_torch


@needs_torch
async def test_both_ranks_train_and_end(tmp_path: Path) -> None:
    """Rank 0 answers with the seconds of the steps, and the ranks end with the block although torchrun is killed."""
    torchrun = ("torch.distributed.run", "--standalone", "--nproc-per-node", 2, "-m", "tests.bench.data_parallel")
    async with Programs(tmp_path) as programs:
        async with programs.talking(*torchrun) as job:
            assert "ready" == await job.receive()
            assert 0 < await job.ask(1)
            ranks = psutil.Process(job.pid).children()
        assert 2 == len(ranks)
        assert [] == psutil.wait_procs(ranks, timeout=60)[1]
