"""CPU, memory and GPU usage of a node and its processes, as in the field `usage` of an announcement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relay_core.agent_api.values import Clean, as_is, count, items, mapping, seconds, text
from relay_core.agent_api.values import port as parse_port

__all__ = ["AllocatorUsage", "GpuUsage", "NodeUsage", "ProcessUsage"]


@dataclass(frozen=True)
class GpuUsage:
    """One GPU of a node."""

    name: str
    busy: float
    """Share of the last sampling period in which it executed kernels, 0 to 1."""
    memory: int
    """Bytes in use."""
    total: int
    """Bytes."""

    def encode(self) -> list[object]:
        """Return one element of `gpus`."""
        return [self.name, round(self.busy, 3), self.memory, self.total]

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> GpuUsage:
        """Read one element of `gpus`."""
        name, busy, memory, total = [*items(value)[:4], *[None] * 4][:4]
        return cls(text(name, clean), seconds(busy) or 0.0, count(memory) or 0, count(total) or 0)


@dataclass(frozen=True)
class AllocatorUsage:
    """Memory of torch's CUDA allocator in one process, on all of its GPUs."""

    allocated: int
    """Bytes allocated for tensors."""
    reserved: int
    """Bytes that the allocator holds, including what it keeps for later tensors."""
    peak: int
    """The maximum of `allocated`; with several GPUs, the sum of their maxima."""
    ooms: int
    """Number of times that torch raised OutOfMemoryError because no memory was left."""
    retries: int
    """Number of times that unused memory had to be freed before memory could be allocated."""

    def encode(self) -> list[object]:
        """Return the fourth element of a process."""
        return [self.allocated, self.reserved, self.peak, self.ooms, self.retries]

    @classmethod
    def parse(cls, value: object) -> AllocatorUsage | None:
        """Read the fourth element of a process; return None if it is missing."""
        numbers = [count(number) or 0 for number in items(value)[:5]]
        return cls(*numbers, *[0] * (5 - len(numbers))) if numbers else None


@dataclass(frozen=True)
class ProcessUsage:
    """The resource usage of one process."""

    port: int
    """The logical port of the process."""
    cpu: float
    """Number of processors in use; 1.0 means that one processor is always busy."""
    memory: int
    """Bytes of its resident set."""
    allocator: AllocatorUsage | None = None
    """None if it has not used CUDA through torch, or did not answer in time."""

    def encode(self) -> list[object]:
        """Return one element of `processes`."""
        found: list[object] = [self.port, round(self.cpu, 3), self.memory]
        return found if self.allocator is None else [*found, self.allocator.encode()]

    @classmethod
    def parse(cls, value: object) -> ProcessUsage | None:
        """Read one element of `processes`; return None if its port is invalid."""
        number, cpu, memory, allocator = [*items(value)[:4], *[None] * 4][:4]
        found = parse_port(number)
        if found is None:
            return None
        return cls(found, seconds(cpu) or 0.0, count(memory) or 0, AllocatorUsage.parse(allocator))


@dataclass(frozen=True)
class NodeUsage:
    """One node, averaged over the time since the previous sample."""

    time: float
    """Unix time by the node's clock."""
    cpu: float
    """Number of processors in use."""
    cores: int
    """Number of processors of the node."""
    memory: int
    """Bytes in use, without caches that can be freed."""
    total: int
    """Memory of the node in bytes, or that of its container if it is less."""
    gpus: tuple[GpuUsage, ...] = ()
    processes: tuple[ProcessUsage, ...] = ()

    def of(self, port: int) -> ProcessUsage | None:
        """Return the usage of the process with a logical port."""
        return next((process for process in self.processes if process.port == port), None)

    def encode(self) -> dict[str, object]:
        """Return the field `usage`."""
        return {
            "time": round(self.time, 1),
            "cpu": round(self.cpu, 3),
            "cores": self.cores,
            "memory": self.memory,
            "total": self.total,
            "gpus": [gpu.encode() for gpu in self.gpus],
            "processes": [process.encode() for process in self.processes],
        }

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> NodeUsage | None:
        """Read the field; return None if it is missing."""
        if not isinstance(value, Mapping):
            return None
        fields = mapping(value)
        processes = (ProcessUsage.parse(each) for each in items(fields.get("processes")))
        return cls(
            time=seconds(fields.get("time")) or 0.0,
            cpu=seconds(fields.get("cpu")) or 0.0,
            cores=count(fields.get("cores")) or 0,
            memory=count(fields.get("memory")) or 0,
            total=count(fields.get("total")) or 0,
            gpus=tuple(GpuUsage.parse(each, clean) for each in items(fields.get("gpus"))),
            processes=tuple(process for process in processes if process is not None),
        )
