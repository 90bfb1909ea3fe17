"""Sends samples to the job's MLflow run as metrics, named like MLflow's own system metrics with a node id.

    system/node_0/cpu_utilization_percentage            of all processors of the node
    system/node_0/rank_3/cpu_utilization_percentage     100 means that one processor is always busy

Another process (`mlflow_writer`) writes them, and neither the job nor the agent waits for it: samples that it cannot
accept in time are dropped.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping

from relay_agent.monitor.files import process_values
from relay_core.agent_api.usage import NodeUsage

logger = logging.getLogger(__name__)


# The MLflow run that a job belongs to, as named by its environment. Azure ML sets these variables in every job.


def find_run(environ: Mapping[str, str]) -> str | None:
    """Return the id of the run; None without a tracking server, a run, or MLflow."""
    run = environ.get("MLFLOW_RUN_ID") or environ.get("AZUREML_RUN_ID")
    if not run or not environ.get("MLFLOW_TRACKING_URI") or importlib.util.find_spec("mlflow") is None:
        return None
    return run


MEGABYTE = 1e6


class MlflowMetrics:
    """The metrics of one node.

    Args:
        run: The id of the run.
        node_rank: Rank of the node in the job.
    """

    def __init__(self, run: str, node_rank: int) -> None:
        self._run = run
        self._prefix = f"system/node_{node_rank}/"
        self._writer: subprocess.Popen[bytes] | None = None

    def send(self, usage: NodeUsage, step: int, ranks: Mapping[int, int | None]) -> None:
        """Pass on a sample; do nothing once the writer has exited.

        Args:
            usage: The sample.
            step: Its number.
            ranks: The rank of each logical port.
        """
        metrics = {self._prefix + name: value for name, value in metrics_of(usage, ranks)}
        line = json.dumps({"time": round(1000 * usage.time), "step": step, "metrics": metrics}).encode() + b"\n"
        # A line shorter than PIPE_BUF is written completely or not at all; a longer line is written as far as there is
        # room.
        with contextlib.suppress(OSError):  # also if the writer cannot be started
            writer = self._started()
            if writer.poll() is None and writer.stdin is not None:
                os.write(writer.stdin.fileno(), line)

    def close(self) -> None:
        """Make the writer exit after it has written the samples that it received; do not wait for its exit."""
        if self._writer is not None and self._writer.stdin is not None:
            self._writer.stdin.close()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._writer is None:
            command = [sys.executable, "-m", "relay_agent.monitor.mlflow_writer", self._run, str(os.getpid())]
            self._writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
            if self._writer.stdin is not None:
                os.set_blocking(self._writer.stdin.fileno(), False)
        return self._writer


def metrics_of(usage: NodeUsage, ranks: Mapping[int, int | None]) -> Iterator[tuple[str, float]]:
    """Yield the values of a sample by name, without the node's prefix."""
    yield "cpu_utilization_percentage", 100 * usage.cpu / (usage.cores or 1)
    yield "system_memory_usage_megabytes", usage.memory / MEGABYTE
    yield "system_memory_usage_percentage", 100 * usage.memory / (usage.total or 1)
    for number, gpu in enumerate(usage.gpus):
        yield f"gpu_{number}_utilization_percentage", 100 * gpu.busy
        yield f"gpu_{number}_memory_usage_megabytes", gpu.memory / MEGABYTE
        yield f"gpu_{number}_memory_usage_percentage", 100 * gpu.memory / (gpu.total or 1)
    yield from process_values(
        usage, ranks, cpu="cpu_utilization_percentage", memory="memory_usage", unit="megabytes", size=MEGABYTE
    )
