"""Samples the node and its processes as long as the agent runs, and keeps what was sampled."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from relay_agent.monitor.event_log import EventLog, scalars_of
from relay_agent.monitor.gpus import Gpus
from relay_agent.monitor.procfs import Counters, read_counters
from relay_agent.monitor.rates import usage_between
from relay_agent.monitor.table_file import append_usage
from relay_core.agent_api.announcement import TargetInfo
from relay_core.agent_api.resources.usage import NodeUsage

__all__ = ["Monitor"]

FILE = "monitor-{host}.csv"
EVENT_DIRECTORY = "Diagnostics"
"""Where InnerEye-DeepLearning's monitor keeps its TensorBoard log; one directory below it for each node."""

logger = logging.getLogger(__name__)


class Monitor:
    """The monitor of one node.

    Args:
        targets: Returns the processes now.
        on_usage: Called with each sample.
        outputs: Directory for the CSV file and the TensorBoard log.
        interval: Seconds between two samples.
    """

    def __init__(
        self,
        targets: Callable[[], list[TargetInfo]],
        on_usage: Callable[[NodeUsage], None],
        outputs: Path,
        interval: float,
    ) -> None:
        self._targets = targets
        self._on_usage = on_usage
        self._host = socket.gethostname()
        self._path = outputs / FILE.format(host=self._host)
        started = time.time()
        name = f"events.out.tfevents.{int(started)}.{self._host}.{os.getpid()}"
        self._events = EventLog(outputs / EVENT_DIRECTORY / self._host / name, started)
        self._samples = 0
        self._interval = interval
        self._can_write = True

    def __repr__(self) -> str:
        return f"<Monitor every {self._interval:g} s, {self._path}>"

    async def run(self) -> None:
        """Sample until cancelled; return if the system has no counters."""
        gpus = await asyncio.to_thread(Gpus)
        before: Counters | None = None
        while True:
            targets = {target.pid: target for target in self._targets() if target.pid is not None}
            try:
                after = await asyncio.to_thread(read_counters, list(targets))
            except (OSError, ValueError, KeyError) as error:
                logger.warning("--debug-monitor needs /proc, which cannot be read: %s", error)
                return
            ports = {pid: target.port for pid, target in targets.items()}
            found = await asyncio.to_thread(gpus.read)
            if before is not None and (usage := usage_between(before, after, ports, found)) is not None:
                self._on_usage(usage)
                await self._keep(usage, {target.port: target.rank for target in targets.values()})
            before = after
            await asyncio.sleep(self._interval)

    async def _keep(self, usage: NodeUsage, ranks: Mapping[int, int | None]) -> None:
        if not self._can_write:
            return
        try:
            await asyncio.to_thread(self._write, usage, ranks)
        except OSError as error:
            self._can_write = False
            logger.warning("--debug-monitor cannot write to %s: %s", self._path.parent, error.strerror or error)

    def _write(self, usage: NodeUsage, ranks: Mapping[int, int | None]) -> None:
        self._samples += 1
        append_usage(self._path, self._host, usage, ranks)
        self._events.append(usage.time, self._samples, scalars_of(usage, ranks))
