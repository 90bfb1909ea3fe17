"""Facts about the GPUs of a node; NVIDIA's own library is read where it is installed."""

import importlib.util
import sys

import pytest

from relay_agent.monitor.gpus import Gpus


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node without nvidia-ml-py has no GPUs, and no error."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert [] == Gpus().read()
    assert "<Gpus 0>" == repr(Gpus())


@pytest.mark.skipif(importlib.util.find_spec("pynvml") is None, reason="nvidia-ml-py is not installed")
def test_with_the_library() -> None:
    """The library answers for each GPU, and a node without a driver has none."""
    assert all(0 <= gpu.busy <= 1 and gpu.memory <= gpu.total for gpu in Gpus().read())
