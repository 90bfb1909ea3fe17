"""Facts about `--debug-monitor` with a real GPU: its own rows, and the allocator's numbers of the rank that uses it."""

import csv
from pathlib import Path

import pytest

from tests.support.deadline import DEADLINE
from tests.support.gpu import needs_gpu
from tests.support.ports import free_port
from tests.support.relay import LocalRelay
from tests.support.run_job import running_job

pytestmark = [pytest.mark.job, needs_gpu]

GIB = 2**30
TRAIN = f"""\
import pathlib
import time

import torch

held = torch.zeros({2 * GIB}, dtype=torch.uint8, device="cuda")
matrix = torch.rand(4096, 4096, device="cuda")
ends = time.monotonic() + {DEADLINE / 2}
while time.monotonic() < ends:
    matrix = (matrix @ matrix).clamp(0, 1)
    torch.cuda.synchronize()
    rows = [line.split(",") for path in pathlib.Path("outputs").glob("monitor-*.csv") for line in path.open()]
    is_busy = any(row[2].startswith("gpu 0") and float(row[8] or 0) > 0.5 for row in rows)
    if is_busy and any(row[9].isdigit() for row in rows):
        break
"""


async def test_gpu_and_allocator(relay: LocalRelay, tmp_path: Path) -> None:
    """The GPU is busy and its memory is in use; the rank has the numbers of torch's allocator; TensorBoard has both."""
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    options = ("--debug-ranks", "none", "--port", str(free_port()), "--debug-monitor", "0.5s")
    async with running_job(relay, script, *options, cwd=tmp_path) as job:
        assert 0 == (await job.finish()).status
    (path,) = (tmp_path / "outputs").glob("monitor-*.csv")
    text = path.read_text()
    print(text)
    rows = list(csv.DictReader(text.splitlines()))
    gpus = [row for row in rows if row["what"].startswith("gpu 0 (NVIDIA ")]
    assert max(float(row["busy"]) for row in gpus) > 0.5
    assert 2 * GIB < max(int(row["memory"]) for row in gpus) < int(gpus[0]["total"])
    allocated = [int(row["torch_allocated"]) for row in rows if row["torch_allocated"]]
    assert 2 * GIB < max(allocated) < 3 * GIB
    (events,) = (tmp_path / "outputs" / "Diagnostics").glob("*/events.out.tfevents.*")
    assert b"gpu" in events.read_bytes()
