"""Computes usage from two readings of counters. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from relay_agent.monitor.procfs import Counters
from relay_core.agent_api.resources.usage import AllocatorUsage, GpuShare, GpuUsage, NodeUsage, ProcessUsage

__all__ = ["usage_between"]


def usage_between(
    before: Counters,
    after: Counters,
    ports: Mapping[int, int],
    gpus: Sequence[GpuUsage] = (),
    allocators: Mapping[int, AllocatorUsage] = MappingProxyType({}),
    *,
    has_host_pids: bool = False,
) -> NodeUsage | None:
    """Return the usage in the time between two readings; None if no time has passed.

    Args:
        before: The earlier reading.
        after: The later one.
        ports: The logical port of each process id.
        gpus: The node's GPUs.
        allocators: The memory usage of torch's allocator, by logical port.
        has_host_pids: Whether a process id that the driver of the GPUs reports can only mean the same process here.
    """
    passed = after.clock - before.clock
    if passed <= 0:
        return None
    processes = []
    for pid, (spent, memory) in after.processes.items():
        if pid in before.processes and pid in ports:
            cpu = max(0.0, spent - before.processes[pid][0]) / passed
            allocator = allocators.get(ports[pid])
            shares = tuple(_shares(pid, gpus, allocator, has_host_pids=has_host_pids))
            known = None if allocator is None else replace(allocator, gpus=())
            processes.append(ProcessUsage(ports[pid], cpu, memory, known, shares))
    return NodeUsage(
        time=after.time,
        cpu=max(0.0, after.cpu - before.cpu) / passed,
        cores=after.cores,
        memory=after.memory,
        total=after.total,
        gpus=tuple(gpus),
        processes=tuple(sorted(processes, key=lambda each: each.port)),
    )


def _shares(
    pid: int, gpus: Sequence[GpuUsage], allocator: AllocatorUsage | None, *, has_host_pids: bool
) -> Iterator[GpuShare]:
    """Yield what a process uses of each GPU.

    In a container, the driver may report the process ids of the host, so its number is used only if torch holds memory
    on the same GPU, and no more than this number.
    """
    held = {} if allocator is None else {each.uuid: each.reserved for each in allocator.gpus if each.uuid}
    for number, gpu in enumerate(gpus):
        used, reserved = dict(gpu.processes).get(pid, 0), held.get(gpu.uuid, 0)
        if used and (has_host_pids or 0 < reserved <= used):
            yield GpuShare(number, used)
        elif reserved:
            yield GpuShare(number, reserved, is_reserved=True)
