"""Reads the counters of the node and of processes from `/proc` (proc(5)); Linux only."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Counters", "has_host_pids", "read_counters"]

PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")
"""The process's own cgroup in a container (cgroup version 2)."""
PID_NAMESPACE = PROC / "self/ns/pid"
FIRST_NAMESPACE = "pid:[4026531836]"
"""The namespace of the host (`PROC_PID_INIT_INO` of Linux); a container has another one."""
KIBIBYTE = 1024
IDLE_FIELDS = (3, 4)
"""Fields of the first line of `/proc/stat`: idle and iowait."""
CPU_FIELDS = (11, 12)
"""Fields of `/proc/PID/stat`, counted after the name of the program: utime and stime."""
CPU_KINDS = 8
"""Number of fields from user to steal; the later fields are already included in user and nice."""


@dataclass(frozen=True)
class Counters:
    """Counters at one point in time."""

    time: float
    """Unix time."""
    clock: float
    """Seconds of a monotonic clock."""
    cpu: float
    """Seconds for which processors have been busy since the start of the system, summed over all processors."""
    cores: int
    memory: int
    total: int
    """Bytes."""
    processes: dict[int, tuple[float, int]] = field(default_factory=dict)
    """Processor seconds and resident bytes by process id, without processes that have exited."""


def has_host_pids(namespace: Path = PID_NAMESPACE) -> bool:
    """Return whether the process ids of this process are those of the host, which a driver reports."""
    try:
        return str(namespace.readlink()) == FIRST_NAMESPACE
    except OSError:
        return False


def read_counters(pids: Iterable[int], proc: Path = PROC, cgroup: Path = CGROUP) -> Counters:
    """Return the counters of the node and of these processes.

    Raises:
        OSError: this system has no `/proc`.
    """
    busy, cores = _cpu(proc)
    memory, total = _memory(proc)
    limit, used = _limit(cgroup)
    if limit is not None and limit < total:
        memory, total = used, limit
    processes = {pid: found for pid in pids if (found := _process(proc / str(pid))) is not None}
    return Counters(time.time(), time.monotonic(), busy, cores, memory, total, processes)


def _cpu(proc: Path) -> tuple[float, int]:
    lines = (proc / "stat").read_text().splitlines()
    numbers = [int(part) for part in lines[0].split()[1 : 1 + CPU_KINDS]]
    busy = sum(numbers) - sum(numbers[at] for at in IDLE_FIELDS if at < len(numbers))
    cores = sum(line.startswith("cpu") for line in lines) - 1
    return busy / os.sysconf("SC_CLK_TCK"), cores


def _memory(proc: Path) -> tuple[int, int]:
    lines = (line.split() for line in (proc / "meminfo").read_text().splitlines())
    found = {parts[0].rstrip(":"): int(parts[1]) * KIBIBYTE for parts in lines}
    return found["MemTotal"] - found["MemAvailable"], found["MemTotal"]


def _limit(cgroup: Path) -> tuple[int | None, int]:
    """Return the memory limit of the container, or None without a limit, and its memory usage."""
    try:
        limit, used = (cgroup / "memory.max").read_text().strip(), int((cgroup / "memory.current").read_text())
        cache = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        return int(limit), used - int(cache.get("inactive_file", 0))
    except (OSError, ValueError):  # no limit ("max"), or another kind of cgroup
        return None, 0


def _process(directory: Path) -> tuple[float, int] | None:
    try:
        fields = (directory / "stat").read_text().rpartition(")")[2].split()
        pages = int((directory / "statm").read_text().split()[1])
        ticks = sum(int(fields[at]) for at in CPU_FIELDS)
    except (OSError, IndexError):  # it has exited
        return None
    return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE")
