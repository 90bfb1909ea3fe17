"""Computes usage from two readings of counters. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from relay_agent.monitor.procfs import Counters
from relay_core.agent_api.resources.usage import AllocatorUsage, GpuUsage, NodeUsage, ProcessUsage

__all__ = ["usage_between"]


def usage_between(
    before: Counters,
    after: Counters,
    ports: Mapping[int, int],
    gpus: Sequence[GpuUsage] = (),
    allocators: Mapping[int, AllocatorUsage] = MappingProxyType({}),
) -> NodeUsage | None:
    """Return the usage in the time between two readings; None if no time has passed.

    Args:
        before: The earlier reading.
        after: The later one.
        ports: The logical port of each process id.
        gpus: The node's GPUs.
        allocators: The memory usage of torch's allocator, by logical port.
    """
    passed = after.clock - before.clock
    if passed <= 0:
        return None
    processes = [
        ProcessUsage(
            ports[pid], max(0.0, spent - before.processes[pid][0]) / passed, memory, allocators.get(ports[pid])
        )
        for pid, (spent, memory) in after.processes.items()
        if pid in before.processes and pid in ports
    ]
    return NodeUsage(
        time=after.time,
        cpu=max(0.0, after.cpu - before.cpu) / passed,
        cores=after.cores,
        memory=after.memory,
        total=after.total,
        gpus=tuple(gpus),
        processes=tuple(sorted(processes, key=lambda each: each.port)),
    )
