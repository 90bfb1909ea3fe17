"""CPU, memory and GPU usage of a node and its processes, as in the field `usage` of an announcement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from relay_core.records import Port, Wire


@dataclass(frozen=True)
class GpuUsage:
    """One GPU of a node."""

    is_array: ClassVar = True
    name: str
    busy: Annotated[float, Wire(digits=3)]
    """Share of the last sampling period in which it executed kernels, 0 to 1."""
    memory: int
    """Bytes in use."""
    total: int
    """Bytes."""
    uuid: Annotated[str, Wire(is_local=True)] = ""
    """As nvidia-smi prints it; "" for a GPU of another vendor."""
    processes: Annotated[tuple[tuple[int, int], ...], Wire(is_local=True)] = ()
    """Process ids with the bytes that each uses, as the driver counts them."""


@dataclass(frozen=True)
class GpuShare:
    """What one process uses of one GPU."""

    is_array: ClassVar = True
    number: int
    """Index of the GPU in the node's `gpus`, and in the output of nvidia-smi."""
    memory: int
    """Bytes."""
    is_reserved: bool = False
    """True if `memory` is only what torch's allocator holds, because the driver does not know the process by its id."""


@dataclass(frozen=True)
class AllocatorUsage:
    """Memory of torch's CUDA allocator in one process, on all of its GPUs."""

    is_array: ClassVar = True
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


@dataclass(frozen=True)
class ProcessUsage:
    """The resource usage of one process."""

    is_array: ClassVar = True
    port: Port
    """The logical port of the process."""
    cpu: Annotated[float, Wire(digits=3)]
    """Number of processors in use; 1.0 means that one processor is always busy."""
    memory: int
    """Bytes of its resident set."""
    allocator: AllocatorUsage | None = None
    """None if it has not used CUDA through torch, or did not answer in time."""
    gpus: tuple[GpuShare, ...] = ()
    """The NVIDIA GPUs that it is known to use."""


@dataclass(frozen=True)
class NodeUsage:
    """One node, averaged over the time since the previous sample."""

    time: Annotated[float, Wire(digits=1)]
    """Unix time by the node's clock."""
    cpu: Annotated[float, Wire(digits=3)]
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
