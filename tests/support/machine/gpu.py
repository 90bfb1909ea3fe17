"""For tests that need a GPU of NVIDIA and torch's CUDA build."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

__all__ = ["needs_gpu"]

needs_gpu = pytest.mark.skipif(
    not any(Path("/dev").glob("nvidia[0-9]*")) or importlib.util.find_spec("torch") is None,
    reason="this machine has no GPU of NVIDIA, or torch is not installed",
)
