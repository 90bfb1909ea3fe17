"""Readings of the counters of the node, its processes and its GPUs, and the usage computed from two of them."""

from __future__ import annotations

import contextlib
import importlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from relay_core.agent_api.usage import AllocatorUsage, GpuShare, GpuUsage, NodeUsage, ProcessUsage
from relay_core.records import parse_or_none

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


# What a process may request of the node's monitor.


class MonitorSettings(NamedTuple):
    """The settings of the monitor, as in the registration of the process that requests it."""

    interval: float
    """Seconds between two samples."""
    outputs: Path
    """Directory for the files of the monitor."""
    metrics: tuple[str, int] | None
    """Host and port at which it serves its samples to Prometheus; None for no server."""

    @classmethod
    def of(cls, registration: Mapping[str, Any]) -> MonitorSettings | None:
        """Return the settings in a registration; None if the process does not request the monitor."""
        interval, address = registration.get("monitor"), registration.get("metrics")
        if not interval:
            return None
        outputs = Path(registration.get("outputs") or "outputs")
        return cls(interval, outputs, (str(address[0]), int(address[1])) if address else None)


# Counters at one point in time.


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


# Reads the usage of the node's GPUs through their vendor's library, if it is installed and a driver is loaded.
#
# NVIDIA   nvidia-ml-py (pynvml)
# AMD      amdsmi of ROCm; https://rocm.docs.amd.com/projects/amdsmi/en/latest/reference/amdsmi-py-api.html

PERCENT = 100
MIB = 2**20
AMD = "AMD GPU"
"""Name of an AMD GPU that reports no name."""
NOT_AVAILABLE = "N/A"
"""The value that amdsmi returns for a number or a text that is not available."""

Reader = Callable[[], "GpuUsage | None"]
"""Returns the current usage of one GPU; None if it does not answer, or does not report its utilization."""


class Gpus:
    """The GPUs of the node, NVIDIA's first; the GPUs of a vendor whose library or driver is missing are omitted."""

    def __init__(self) -> None:
        self._readers = [reader for find in (_find_nvidia, _find_amd) for reader in _found(find)]

    def read(self) -> list[GpuUsage]:
        """Return the current usage of each GPU that answers."""
        return [found for reader in self._readers if (found := reader()) is not None]


def _found(find: Callable[[], Iterable[Reader]]) -> Iterable[Reader]:
    try:
        return find()
    except Exception:  # noqa: BLE001 - not installed, no driver, no permission: each library has its own errors
        return []


def _find_nvidia() -> list[Reader]:
    library: Any = importlib.import_module("pynvml")
    library.nvmlInit()
    handles = [library.nvmlDeviceGetHandleByIndex(at) for at in range(library.nvmlDeviceGetCount())]
    return [partial(_read_nvidia, library, handle) for handle in handles]


def _read_nvidia(library: Any, handle: Any) -> GpuUsage | None:
    try:
        memory = _memory_of(library, handle)
        name = library.nvmlDeviceGetName(handle)
        busy = library.nvmlDeviceGetUtilizationRates(handle).gpu / PERCENT
        uuid = library.nvmlDeviceGetUUID(handle)
    except library.NVMLError:
        return None
    processes = tuple(_processes_of(library, handle))
    return GpuUsage(_text(name), busy, int(memory.used), int(memory.total), _text(uuid), processes)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _processes_of(library: Any, handle: Any) -> Iterator[tuple[int, int]]:
    """Yield the id of each process that has memory on the GPU, with its bytes if the driver counts them."""
    with contextlib.suppress(library.NVMLError):  # not supported, or not permitted
        for process in library.nvmlDeviceGetComputeRunningProcesses(handle):
            if process.usedGpuMemory is not None:
                yield process.pid, int(process.usedGpuMemory)


def _memory_of(library: Any, handle: Any) -> Any:
    """Return the memory in use as nvidia-smi counts it: without what the driver reserves for itself."""
    version = getattr(library, "nvmlMemory_v2", None)
    if version is not None:
        with contextlib.suppress(library.NVMLError):  # a driver before 510
            return library.nvmlDeviceGetMemoryInfo(handle, version)
    return library.nvmlDeviceGetMemoryInfo(handle)


def _find_amd() -> list[Reader]:
    library: Any = importlib.import_module("amdsmi")  # without ROCm's C library, this raises KeyError
    library.amdsmi_init()
    handles = library.amdsmi_get_processor_handles()
    return [partial(_read_amd, library, handle, _amd_name(library, handle)) for handle in handles]


def _amd_name(library: Any, handle: Any) -> str:
    with contextlib.suppress(library.AmdSmiException):
        name = str(library.amdsmi_get_gpu_asic_info(handle)["market_name"])
        return AMD if name == NOT_AVAILABLE else name
    return AMD


def _read_amd(library: Any, handle: Any, name: str) -> GpuUsage | None:
    try:
        busy = library.amdsmi_get_gpu_activity(handle)["gfx_activity"]
        memory = library.amdsmi_get_gpu_vram_usage(handle)  # in MiB
    except library.AmdSmiException:
        return None
    used, total = memory["vram_used"], memory["vram_total"]
    if NOT_AVAILABLE in {busy, used, total}:
        return None
    return GpuUsage(name, busy / PERCENT, used * MIB, total * MIB)


# Computes usage from two readings of counters. No I/O.


@dataclass(frozen=True)
class HeldMemory:
    """What torch's allocator holds on one GPU."""

    is_array: ClassVar = True
    uuid: str
    """As nvidia-smi prints it; "" if torch does not report it."""
    reserved: int
    """Bytes."""


@dataclass(frozen=True)
class AllocatorReading:
    """What a process reports of torch's allocator."""

    usage: AllocatorUsage
    gpus: tuple[HeldMemory, ...] = ()
    """The GPUs on which it holds memory."""

    @classmethod
    def of(cls, answer: object) -> AllocatorReading | None:
        """Read what `monitor.allocator.read_allocator` has returned; None if it is something else."""
        match answer:
            case [*numbers, list(gpus)] if usage := parse_or_none(AllocatorUsage, numbers):
                return cls(usage, tuple(filter(None, (parse_or_none(HeldMemory, each) for each in gpus))))
        return None


def usage_between(
    before: Counters,
    after: Counters,
    ports: Mapping[int, int],
    gpus: Sequence[GpuUsage] = (),
    allocators: Mapping[int, AllocatorReading] = MappingProxyType({}),
    *,
    has_host_pids: bool = False,
) -> NodeUsage | None:
    """Return the usage in the time between two readings; None if no time has passed.

    Args:
        before: The earlier reading.
        after: The later one.
        ports: The logical port of each process id.
        gpus: The node's GPUs.
        allocators: What the processes report of torch's allocator, by logical port.
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
            known = None if allocator is None else allocator.usage
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
    pid: int, gpus: Sequence[GpuUsage], allocator: AllocatorReading | None, *, has_host_pids: bool
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
