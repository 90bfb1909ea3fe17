"""This process's answer to the `allocator` request: memory usage of torch's CUDA allocator, as counted by torch.

This runs in the job. It never imports torch and never initializes CUDA, because that would use GPU memory. A process
that has not used CUDA yet has no numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

RESERVED = "reserved_bytes.all.current"
KEYS = ("allocated_bytes.all.current", RESERVED, "allocated_bytes.all.peak", "num_ooms", "num_alloc_retries")
"""Keys of `torch.cuda.memory_stats()`, in the order of the fields of `AllocatorUsage`."""


def read_allocator() -> list[Any] | None:
    """Return each number in `KEYS`, summed over all GPUs, and then a list of the GPUs on which memory is reserved.

    The list has UUID and bytes of each GPU. The result is None if the process has not used CUDA. torch reads its own
    counters for this and does not wait for a GPU. ROCm builds of torch have the same functions.
    """
    cuda: Any = sys.modules.get("torch.cuda")
    # While another thread is importing torch, the module already exists, but its functions may not.
    is_initialized, memory_stats = (getattr(cuda, name, None) for name in ("is_initialized", "memory_stats"))
    if is_initialized is None or memory_stats is None or not is_initialized():
        return None
    found = [memory_stats(device) for device in range(cuda.device_count())]
    reserved = [(device, stats.get(RESERVED, 0)) for device, stats in enumerate(found)]
    return [*summed(found), [[_uuid(cuda, device), size] for device, size in reserved if size]]


def _uuid(cuda: Any, device: int) -> str:
    """Return the UUID of a GPU as nvidia-smi prints it; "" if this version of torch does not know it."""
    found = getattr(cuda.get_device_properties(device), "uuid", "")
    return f"GPU-{found}" if found else ""


def summed(devices: Iterable[Mapping[str, int]]) -> list[int]:
    """Return each number in `KEYS`, summed over the devices.

    Args:
        devices: What `torch.cuda.memory_stats` returns for each device; a missing number counts as 0.
    """
    found = list(devices)
    return [sum(stats.get(key, 0) for stats in found) for key in KEYS]
