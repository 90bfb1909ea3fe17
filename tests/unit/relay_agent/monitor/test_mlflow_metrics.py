"""Facts about the names of the monitor's metrics in MLflow."""

import os
import sys
from pathlib import Path

import pytest

from relay_agent.monitor import mlflow_metrics
from relay_agent.monitor.mlflow_metrics import MlflowMetrics, metrics_of
from relay_core.agent_api.usage import AllocatorUsage, GpuShare, GpuUsage, NodeUsage, ProcessUsage

USAGE = NodeUsage(
    100.0, 1, 4, 10**9, 4 * 10**9, (GpuUsage("H200", 0.5, 10**9, 10**10),), (ProcessUsage(5678, 0.25, 5 * 10**8),)
)


def test_names() -> None:
    """They are those of MLflow's own system metrics, and one level deeper for each rank."""
    assert {
        "cpu_utilization_percentage": 25.0,
        "system_memory_usage_megabytes": 1000.0,
        "system_memory_usage_percentage": 25.0,
        "gpu_0_utilization_percentage": 50.0,
        "gpu_0_memory_usage_megabytes": 1000.0,
        "gpu_0_memory_usage_percentage": 10.0,
        "rank_3/cpu_utilization_percentage": 25.0,
        "rank_3/memory_usage_megabytes": 500.0,
    } == dict(metrics_of(USAGE, {5678: 3}))


def test_names_of_torch() -> None:
    """A rank that uses CUDA through torch has the numbers of its allocator and of its GPUs, too."""
    allocator = AllocatorUsage(10**9, 4 * 10**9, 2 * 10**9, 2, 1)
    process = ProcessUsage(5678, 0.0, 0, allocator, (GpuShare(1, 5 * 10**9),))
    found = dict(metrics_of(NodeUsage(100.0, 0, 4, 0, 10**9, (), (process,)), {5678: 3}))
    assert {
        "rank_3/torch_allocated_megabytes": 1000.0,
        "rank_3/torch_reserved_megabytes": 4000.0,
        "rank_3/torch_peak_megabytes": 2000.0,
        "rank_3/torch_ooms": 2,
        "rank_3/torch_retries": 1,
        "rank_3/gpu_1_memory_usage_megabytes": 5000.0,
    } == {name: value for name, value in found.items() if "torch" in name or "gpu" in name}


def test_a_writer_that_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples that it cannot take are dropped, so that the monitor never waits for it."""
    program = tmp_path / "reads-nothing"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'import signal; signal.pause()'\n")
    program.chmod(0o700)
    monkeypatch.setattr(mlflow_metrics.sys, "executable", str(program))
    metrics = MlflowMetrics("r1", 0)
    many = {port: port for port in range(5678, 5678 + 200)}
    processes = tuple(ProcessUsage(port, 0.25, 1) for port in many)
    for step in range(50):
        metrics.send(NodeUsage(100.0, 1, 4, 1, 2, (), processes), step, many)
    writer = metrics._writer
    assert writer is not None
    assert not os.get_blocking(writer.stdin.fileno())
    writer.kill()
    writer.wait()
    metrics.send(USAGE, 51, {})
    metrics.close()
