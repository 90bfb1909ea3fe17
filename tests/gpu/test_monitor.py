"""Facts about `--debug-monitor` with a real GPU: its own rows, and the allocator's numbers of the rank that uses it."""

import csv
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from relay_agent.monitor.allocator import read_allocator
from relay_agent.monitor.readings import Gpus
from tests.support.jobs.running import running_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.gpu import needs_gpu
from tests.support.machine.ports import free_port
from tests.support.network.relay import LocalRelay

pytestmark = [pytest.mark.job, needs_gpu]

MIB, GIB = 2**20, 2**30
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


def seen_by_driver(*query: str) -> list[int]:
    """Return the MiB of memory that nvidia-smi prints."""
    command = ["nvidia-smi", *query, "--format=csv,noheader,nounits"]
    return [int(line) for line in subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()]


async def test_gpu_and_allocator(
    relay: LocalRelay, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The GPU is busy and its memory is in use; the rank has its GPU and the numbers of torch's allocator."""
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
    used = max(int(row["memory"]) for row in gpus)
    assert 2 * GIB < used < int(gpus[0]["total"])
    allocated = [int(row["torch_allocated"]) for row in rows if row["torch_allocated"]]
    assert 2 * GIB < max(allocated) < 3 * GIB
    *_, last = (row for row in rows if row["gpus"])
    mine = int(last["gpu_memory"])
    assert "0" == last["gpus"]
    assert 2 * GIB < mine <= used
    who = "torch's allocator" if last["gpu_memory_is_reserved"] == "true" else "the driver"
    record_property("figure", f"GPU {used / MIB:.0f} MiB, rank {mine / MIB:.0f} MiB, counted by {who}")
    (events,) = (tmp_path / "outputs" / "Diagnostics").glob("*/events.out.tfevents.*")
    assert b"gpu" in events.read_bytes()


def test_memory_is_that_of_nvidia_smi(record_property: Callable[[str, object], None]) -> None:
    """The memory of each GPU is what nvidia-smi prints, and this process knows which GPU it uses."""
    import torch

    held = torch.zeros(2 * GIB, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    expected, found = seen_by_driver("--query-gpu=memory.used"), Gpus().read()
    assert expected == pytest.approx([gpu.memory / MIB for gpu in found], abs=64)  # other processes may use the GPUs
    *_, ((uuid, reserved),) = read_allocator() or [[]]
    assert held.numel() <= reserved
    (mine,) = (gpu for gpu in found if gpu.uuid == uuid)
    known = "lists" if os.getpid() in dict(mine.processes) else "does not list"
    figure = f"{mine.memory / MIB:.0f} MiB, nvidia-smi {expected[0]} MiB; the driver {known} this process by its id"
    record_property("figure", figure)
