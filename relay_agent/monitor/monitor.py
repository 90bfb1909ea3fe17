"""Samples the usage of the node and its processes while the agent is running, and saves the samples."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from relay_agent.monitor import readings
from relay_agent.monitor.files import EventLog, append_usage, scalars_of
from relay_agent.monitor.mlflow_metrics import MlflowMetrics, find_run
from relay_agent.monitor.prometheus import MetricsServer, as_text
from relay_core.agent_api.announcement import TargetInfo
from relay_core.agent_api.usage import NodeUsage

FILE = "monitor-{host}.csv"
EVENT_DIRECTORY = "Diagnostics"
"""The directory in which InnerEye-DeepLearning's monitor keeps its TensorBoard log; it has one subdirectory for each
node."""

logger = logging.getLogger(__name__)


class Monitor:
    """The monitor of one node.

    Args:
        targets: Returns the current processes.
        allocators: Returns the memory usage of torch's allocator in each process, by logical port.
        on_usage: Called with each sample.
        settings: What the process that has requested the monitor has set.
        environ: The job's environment, which names its MLflow run.
        node_rank: Rank of the node in the job.
    """

    def __init__(
        self,
        targets: Callable[[], list[TargetInfo]],
        allocators: Callable[[], Awaitable[Mapping[int, readings.AllocatorReading]]],
        on_usage: Callable[[NodeUsage], None],
        settings: readings.MonitorSettings,
        *,
        environ: Mapping[str, str],
        node_rank: int,
    ) -> None:
        self._targets = targets
        self._allocators = allocators
        self._on_usage = on_usage
        self._host = socket.gethostname()
        self._path = settings.outputs / FILE.format(host=self._host)
        started = time.time()
        name = f"events.out.tfevents.{int(started)}.{self._host}.{os.getpid()}"
        self._events = EventLog(settings.outputs / EVENT_DIRECTORY / self._host / name, started)
        self._samples = 0
        self._settings = settings
        self._can_write = True
        run = find_run(environ)
        self._mlflow = None if run is None else MlflowMetrics(run, node_rank)
        self._metrics = MetricsServer()

    async def run(self) -> None:
        """Sample until cancelled; return if the system has no counters."""
        await self._serve_metrics()
        try:
            await self._sample()
        finally:
            self._metrics.close()
            if self._mlflow is not None:
                self._mlflow.close()

    async def _sample(self) -> None:
        gpus = await asyncio.to_thread(readings.Gpus)
        before: readings.Counters | None = None
        usage_of = partial(readings.usage_between, has_host_pids=readings.has_host_pids())
        while True:
            targets = {target.pid: target for target in self._targets() if target.pid is not None}
            try:
                after = await asyncio.to_thread(readings.read_counters, list(targets))
            except (OSError, ValueError, KeyError) as error:
                logger.warning("--debug-monitor needs /proc, which cannot be read: %s", error)
                return
            ports = {pid: target.port for pid, target in targets.items()}
            found = await asyncio.to_thread(gpus.read)
            allocators = await self._allocators()
            if before is not None and (usage := usage_of(before, after, ports, found, allocators)) is not None:
                self._on_usage(usage)
                ranks = {target.port: target.rank for target in targets.values()}
                await self._keep(usage, ranks)
                self._send(usage, ranks)
            before = after
            await asyncio.sleep(self._settings.interval)

    async def _serve_metrics(self) -> None:
        if self._settings.metrics is None:
            return
        host, port = self._settings.metrics
        try:
            await self._metrics.start(host, port)
        except OSError as error:
            logger.warning("--debug-metrics: cannot listen on %s, port %d: %s", host, port, error.strerror or error)

    def _send(self, usage: NodeUsage, ranks: Mapping[int, int | None]) -> None:
        self._metrics.show(as_text(usage, self._host, ranks))
        if self._mlflow is not None:
            self._mlflow.send(usage, self._samples, ranks)

    async def _keep(self, usage: NodeUsage, ranks: Mapping[int, int | None]) -> None:
        self._samples += 1
        if not self._can_write:
            return
        try:
            await asyncio.to_thread(self._write, usage, ranks)
        except OSError as error:
            self._can_write = False
            logger.warning("--debug-monitor cannot write to %s: %s", self._path.parent, error.strerror or error)

    def _write(self, usage: NodeUsage, ranks: Mapping[int, int | None]) -> None:
        append_usage(self._path, self._host, usage, ranks)
        self._events.append(usage.time, self._samples, dict(scalars_of(usage, ranks)))
