"""A stand-in for NVIDIA's driver below the real nvidia-ml-py: C functions that fill in the structures of nvml.h."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pynvml

if TYPE_CHECKING:
    import pytest

__all__ = ["Gpu", "install_driver"]

NAME = b"NVIDIA H200"
SUCCESS, NOT_SUPPORTED = pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_SUPPORTED


@dataclass
class Gpu:
    """One GPU of the stand-in."""

    uuid: str = "GPU-00000000-0000-0000-0000-000000000000"
    used: int = 24_817_696_768
    """Bytes, as nvidia-smi prints them."""
    reserved: int = 637_796_352
    """Bytes that the driver reserves; the first version of the structure counts them as used."""
    total: int = 150_754_820_096
    busy: int = 50
    processes: dict[int, int | None] | None = field(default_factory=dict)
    """Bytes by process id; None if the driver does not support the question."""


class Driver:
    """The functions of libnvidia-ml.so; those in `missing` do not exist, as in an old driver."""

    def __init__(self, gpus: list[Gpu], missing: tuple[str, ...]) -> None:
        self._gpus = gpus
        self._missing = missing

    def __getattribute__(self, name: str) -> Any:
        if name in object.__getattribute__(self, "_missing"):
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def _gpu(self, handle: Any) -> Gpu:
        return self._gpus[(ctypes.cast(handle, ctypes.c_void_p).value or 0) - 1]

    def nvmlInitWithFlags(self, _flags: Any) -> int:  # noqa: N802 - as in nvml.h, here and below
        return SUCCESS

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        count._obj.value = len(self._gpus)
        return SUCCESS

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:  # noqa: N802
        address = ctypes.c_void_p(index.value + 1)
        ctypes.memmove(handle, ctypes.byref(address), ctypes.sizeof(address))
        return SUCCESS

    def nvmlDeviceGetName(self, _handle: Any, name: Any, _size: Any) -> int:  # noqa: N802
        name.value = NAME
        return SUCCESS

    def nvmlDeviceGetUUID(self, handle: Any, uuid: Any, _size: Any) -> int:  # noqa: N802
        uuid.value = self._gpu(handle).uuid.encode()
        return SUCCESS

    def nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> int:  # noqa: N802
        rates._obj.gpu = self._gpu(handle).busy
        return SUCCESS

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:  # noqa: N802
        gpu, found = self._gpu(handle), memory._obj
        found.total, found.used = gpu.total, gpu.used + gpu.reserved
        found.free = found.total - found.used
        return SUCCESS

    def nvmlDeviceGetMemoryInfo_v2(self, handle: Any, memory: Any) -> int:  # noqa: N802
        gpu, found = self._gpu(handle), memory._obj
        if found.version != ctypes.sizeof(found) | 2 << 24:
            return int(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
        found.total, found.reserved, found.used = gpu.total, gpu.reserved, gpu.used
        found.free = found.total - found.used - found.reserved
        return SUCCESS

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, found: Any) -> int:  # noqa: N802
        processes = self._gpu(handle).processes
        if processes is None:
            return int(NOT_SUPPORTED)
        room, count._obj.value = count._obj.value, len(processes)
        if room < len(processes):
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        for at, (pid, used) in enumerate(processes.items()):
            found[at].pid = pid
            found[at].usedGpuMemory = pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value if used is None else used
        return SUCCESS


def install_driver(monkeypatch: pytest.MonkeyPatch, *gpus: Gpu, missing: tuple[str, ...] = ()) -> None:
    """Let nvidia-ml-py find a driver with these GPUs."""
    monkeypatch.setattr(pynvml, "nvmlLib", Driver(list(gpus), missing))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
