"""Facts about the GPUs of a node; a vendor's own library is read where it is installed.

No test has a GPU. NVIDIA's library is the real one, above a stand-in for the driver; what AMD's library returns is
taken from its documentation and source.
"""

import importlib.util
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from relay_agent.monitor.readings import Gpus
from relay_core.agent_api.usage import GpuUsage
from tests.support.machine.nvml import Gpu, install_driver

LIBRARIES = ("pynvml", "amdsmi")


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LIBRARIES:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("no_library")
def test_without_a_library() -> None:
    """A node without nvidia-ml-py and amdsmi has no GPUs, and no error."""
    assert [] == Gpus().read()


@pytest.mark.parametrize("name", LIBRARIES)
def test_with_a_library(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library answers for each GPU, and a node without a driver has none."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    (other,) = {*LIBRARIES} - {name}
    monkeypatch.setitem(sys.modules, other, None)
    assert all(0 <= gpu.busy <= 1 and gpu.memory <= gpu.total for gpu in Gpus().read())


@pytest.mark.parametrize(("missing", "memory"), [("", 24_817_696_768), ("nvmlDeviceGetMemoryInfo_v2", 25_455_493_120)])
def test_memory_of_nvidia_gpus(missing: str, memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory in use is what nvidia-smi prints; an old driver counts its own reserve as well."""
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    install_driver(monkeypatch, Gpu(), Gpu(busy=100), missing=(missing,))
    gpu = GpuUsage("NVIDIA H200", 0.5, memory, 150_754_820_096, Gpu().uuid)
    assert [gpu, replace(gpu, busy=1.0)] == Gpus().read()


def test_processes_of_nvidia_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each GPU has its UUID and the bytes of its processes, without those that the driver does not count."""
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    one, other, unknown = (Gpu("GPU-1", processes={7: 900, 44: None}), Gpu("GPU-2"), Gpu("GPU-3", processes=None))
    install_driver(monkeypatch, one, other, unknown)
    expected = [("GPU-1", ((7, 900),)), ("GPU-2", ()), ("GPU-3", ())]
    assert expected == [(gpu.uuid, gpu.processes) for gpu in Gpus().read()]


class AmdSmiException(Exception):
    """The base of all of amdsmi's exceptions."""


def amd_library(gpus: dict[int, dict[str, Any]]) -> SimpleNamespace:
    """Return the part of amdsmi that is used; a value that is an exception is raised."""

    def value(handle: int, field: str) -> Any:
        if isinstance(found := gpus[handle][field], Exception):
            raise found
        return found

    def vram(handle: int) -> dict[str, int]:
        return {"vram_total": value(handle, "total"), "vram_used": value(handle, "used")}

    return SimpleNamespace(
        AmdSmiException=AmdSmiException,
        amdsmi_init=lambda: None,
        amdsmi_get_processor_handles=lambda: list(gpus),
        amdsmi_get_gpu_asic_info=lambda handle: {"market_name": value(handle, "name")},
        amdsmi_get_gpu_activity=lambda handle: {"gfx_activity": value(handle, "busy"), "umc_activity": 1},
        amdsmi_get_gpu_vram_usage=vram,
    )


@pytest.mark.usefixtures("no_library")
def test_amd_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name, share and bytes are read; a GPU that does not report its utilization, or fails, is left out."""
    gpu = {"name": "MI300X", "busy": 25, "used": 1024, "total": 4096}
    broken = AmdSmiException()
    gpus = {0: gpu, 1: gpu | {"busy": "N/A"}, 2: gpu | {"name": broken}, 3: gpu | {"used": broken}}
    monkeypatch.setitem(sys.modules, "amdsmi", amd_library(gpus))
    expected = GpuUsage("MI300X", 0.25, 2**30, 2**32)
    assert [expected, GpuUsage("AMD GPU", 0.25, 2**30, 2**32)] == Gpus().read()


@pytest.mark.usefixtures("no_library")
@pytest.mark.parametrize("error", [AmdSmiException(), KeyError("libamd_smi.so"), OSError()])
def test_amd_library_without_a_driver(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that cannot be initialized means that the node has no such GPUs."""

    def fail() -> None:
        raise error

    library = amd_library({})
    library.amdsmi_init = fail
    monkeypatch.setitem(sys.modules, "amdsmi", library)
    assert [] == Gpus().read()
