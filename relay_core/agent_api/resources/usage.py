"""What a node and its processes use of processors, memory and GPUs, as in the field `usage` of an announcement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relay_core.agent_api.values import Clean, as_is, count, items, mapping, seconds, text
from relay_core.agent_api.values import port as parse_port

__all__ = ["GpuUsage", "NodeUsage", "ProcessUsage"]


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
class ProcessUsage:
    """One process."""

    port: int
    """Its logical port."""
    cpu: float
    """Processors in use: 1.0 is one of them all the time."""
    memory: int
    """Bytes of its resident set."""

    def encode(self) -> list[object]:
        """Return one element of `processes`."""
        return [self.port, round(self.cpu, 3), self.memory]

    @classmethod
    def parse(cls, value: object) -> ProcessUsage | None:
        """Read one element of `processes`; None if its port is invalid."""
        number, cpu, memory = [*items(value)[:3], *[None] * 3][:3]
        found = parse_port(number)
        return None if found is None else cls(found, seconds(cpu) or 0.0, count(memory) or 0)


@dataclass(frozen=True)
class NodeUsage:
    """One node, averaged over the time since the previous sample."""

    time: float
    """Unix time by the node's clock."""
    cpu: float
    """Processors in use."""
    cores: int
    """Processors of the node."""
    memory: int
    """Bytes in use, without caches that can be freed."""
    total: int
    """Bytes of the node, or of its container if that has less."""
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
        """Read the field; None if it is missing."""
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
