"""Facts about statistics of tensors and arrays."""

import threading
from typing import Any

import numpy as np
import pytest

import relay_agent
from relay_agent.values import contents
from relay_agent.values.contents import compute_statistics


def test_array():
    """Minimum, maximum and mean are those of the finite elements; the others are counted."""
    array = np.array([1.0, np.nan, 3.0, np.inf, -np.inf, np.nan])
    assert "ndarray[6] float64: min 1 max 3 mean 2, 2 NaN, 2 infinite of 6" == repr(relay_agent.stats(array))


def test_nothing_finite():
    """An array of nothing but NaN, or of no element, has no minimum."""
    assert "ndarray[5] float64: no finite elements, 5 NaN of 5" == repr(compute_statistics(np.full(5, np.nan)))
    assert "ndarray[0] float64: no finite elements of 0" == repr(compute_statistics(np.zeros(0)))


def test_pieces(monkeypatch: pytest.MonkeyPatch):
    """The figures do not depend on the size of the pieces."""
    array = np.random.default_rng(1).normal(size=(30, 40))
    whole = repr(compute_statistics(array))
    monkeypatch.setattr(contents, "PIECE", 7)
    assert whole == repr(compute_statistics(array))


def test_containers():
    """Each array in a value has a line; a value without any is named."""
    value = {"a": np.zeros(2), "b": {"c": np.ones(3)}, "d": 5}
    assert ["a: min 0 max 0 mean 0 of 2", "b.c: min 1 max 1 mean 1 of 3"] == repr(
        compute_statistics(value)
    ).splitlines()
    assert "not a tensor or an array: int" == repr(compute_statistics(5))


def test_deadline():
    """What takes too long is given up, and what is complete is shown."""
    forever = threading.Event()

    class Stuck(np.ndarray[Any, Any]):
        def __getitem__(self, index: Any) -> Any:
            forever.wait()
            return super().__getitem__(index)

    lines = repr(compute_statistics([np.zeros(2), np.zeros(2).view(Stuck)], seconds=0.2)).splitlines()
    forever.set()
    assert ["[0]: min 0 max 0 mean 0 of 2", "incomplete: computing the statistics took longer than 0.2 s"] == lines


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
def test_tensors(dtype: str):
    """Tensors of all dtypes have statistics."""
    torch = pytest.importorskip("torch", reason="torch is missing: make extras installs it", exc_type=ImportError)
    tensor = torch.tensor([0, 1, 1, 0] * 2).to(getattr(torch, dtype))
    assert f"Tensor[8] {dtype} cpu: min 0 max 1 mean 0.5 of 8" == repr(compute_statistics(tensor))
