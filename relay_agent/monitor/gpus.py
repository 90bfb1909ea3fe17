"""Reads the NVIDIA GPUs of the node through nvidia-ml-py, if it is installed and a driver is loaded."""

from __future__ import annotations

import importlib
from typing import Any

from relay_core.agent_api.resources.usage import GpuUsage

__all__ = ["Gpus"]

PERCENT = 100


class Gpus:
    """The GPUs of the node; an empty list without NVIDIA's library, driver or hardware."""

    def __init__(self) -> None:
        self._library: Any = None
        self._handles: list[Any] = []
        try:
            library = importlib.import_module("pynvml")
            library.nvmlInit()
            self._handles = [library.nvmlDeviceGetHandleByIndex(at) for at in range(library.nvmlDeviceGetCount())]
            self._library = library
        except Exception:  # noqa: BLE001 - not installed, no driver, no permission: the library has its own errors
            self._handles = []

    def __repr__(self) -> str:
        return f"<Gpus {len(self._handles)}>"

    def read(self) -> list[GpuUsage]:
        """Return the current usage of each GPU that answers."""
        return [found for handle in self._handles if (found := self._read(handle)) is not None]

    def _read(self, handle: Any) -> GpuUsage | None:
        library = self._library
        try:
            memory = library.nvmlDeviceGetMemoryInfo(handle)
            name = library.nvmlDeviceGetName(handle)
            busy = library.nvmlDeviceGetUtilizationRates(handle).gpu / PERCENT
        except library.NVMLError:  # it was lost, or it does not report its utilization
            return None
        return GpuUsage(name.decode() if isinstance(name, bytes) else name, busy, int(memory.used), int(memory.total))
