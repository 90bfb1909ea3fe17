"""Reads the usage of the node's GPUs through their vendor's library, if it is installed and a driver is loaded.

NVIDIA   nvidia-ml-py (pynvml)
AMD      amdsmi of ROCm; https://rocm.docs.amd.com/projects/amdsmi/en/latest/reference/amdsmi-py-api.html
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from relay_core.agent_api.resources.usage import GpuUsage

__all__ = ["Gpus"]

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

    def __repr__(self) -> str:
        return f"<Gpus {len(self._readers)}>"

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
