"""Facts about the monitor's event file; TensorBoard itself reads it."""

import json
import subprocess
from pathlib import Path

import pytest

from relay_agent.monitor.files import EventLog, scalars_of
from relay_core.agent_api.usage import AllocatorUsage, GpuShare, GpuUsage, NodeUsage, ProcessUsage
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.mlflow import PYTHON, needs_mlflow

READ = """\
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1]).Reload()
found = {tag: [(at.wall_time, at.step, at.value) for at in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
print(json.dumps(found))
"""
USAGE = NodeUsage(100.0, 2, 4, 2**30, 2**31, (GpuUsage("H200", 0.5, 2**30, 2**31),), (ProcessUsage(5678, 0.25, 2**29),))


@needs_mlflow
@pytest.mark.xdist_group("mlflow")
def test_tensorboard_reads_it(tmp_path: Path) -> None:
    """Each value has its tag, time and step, in order; the checksums are right, or TensorBoard would skip a record."""
    log = EventLog(tmp_path / "Diagnostics" / "events.out.tfevents.100.node-0.1", 99.0)
    for step in (1, 2, 300):
        log.append(100.0 + step, step, {"node/cpu_percent": step / 2, "gpu_0 (ü)/busy": 1e9})
    found = subprocess.run(
        [PYTHON, "-c", READ, tmp_path / "Diagnostics"], check=True, capture_output=True, timeout=DEADLINE
    )
    assert {
        "node/cpu_percent": [[101.0, 1, 0.5], [102.0, 2, 1.0], [400.0, 300, 150.0]],
        "gpu_0 (ü)/busy": [[101.0, 1, 1e9], [102.0, 2, 1e9], [400.0, 300, 1e9]],
    } == json.loads(found.stdout)


def test_nothing_is_written_before_the_first_sample(tmp_path: Path) -> None:
    """A job that ends at once leaves no empty curves."""
    EventLog(tmp_path / "Diagnostics" / "events", 99.0)
    assert not (tmp_path / "Diagnostics").exists()


def test_checksum() -> None:
    """The checksum is that of RFC 3720, B.4, for 32 bytes of zeros (8a9136aa), masked."""
    found = int.from_bytes(EventLog(Path("x"), 0.0)._checksum(bytes(32)), "little")
    crc = 0x8A9136AA
    assert ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF == found


def test_tags() -> None:
    """A rank has its number, and a process without one its port."""
    assert {
        "node/cpu_percent": 50.0,
        "node/memory_gib": 1.0,
        "gpu_0/busy_percent": 50.0,
        "gpu_0/memory_gib": 1.0,
        "rank_3/cpu_percent": 25.0,
        "rank_3/memory_gib": 0.5,
    } == dict(scalars_of(USAGE, {5678: 3}))
    assert "port_5678/cpu_percent" in dict(scalars_of(USAGE, {5678: None}))


def test_tags_of_torch() -> None:
    """A rank that uses CUDA through torch has the numbers of its allocator and of its GPUs, too."""
    process = ProcessUsage(5678, 0.0, 0, AllocatorUsage(2**30, 2**32, 2**31, 2, 1), (GpuShare(1, 2**33),))
    found = dict(scalars_of(NodeUsage(100.0, 0, 4, 0, 2**31, (), (process,)), {5678: 3}))
    assert {
        "rank_3/torch_allocated_gib": 1.0,
        "rank_3/torch_reserved_gib": 4.0,
        "rank_3/torch_peak_gib": 2.0,
        "rank_3/torch_ooms": 2,
        "rank_3/torch_retries": 1,
        "rank_3/gpu_1_memory_gib": 8.0,
    } == {tag: value for tag, value in found.items() if "torch" in tag or "gpu" in tag}
