"""Facts about checksums of values, and about what they consist of."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from relay_agent.values.contents import fingerprint, flatten
from relay_core.agent_api.evaluation import Selection, Value

FOREVER = time.monotonic() + 1e6


def checksum(value: object) -> str:
    return fingerprint(value, Selection(), FOREVER).digest


def names(value: object) -> list[str]:
    return [leaf.name for leaf in flatten(value)]


def library(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is missing: make extras installs it", exc_type=ImportError)


def test_equal_values():
    """Equal values have equal checksums, whatever their addresses and memory layouts are."""
    array = np.arange(12.0).reshape(3, 4)
    assert checksum({"a": array, "b": object()}) == checksum({"a": array.T.copy().T, "b": object()})
    assert checksum(array) != checksum(array.T)


def test_large_array_in_pieces(monkeypatch: pytest.MonkeyPatch):
    """An array is read in pieces, and its checksum does not depend on their size."""
    array = np.arange(10_000.0).reshape(100, 100)
    whole = checksum(array)
    monkeypatch.setattr("relay_agent.values.contents.PIECE", 1000)
    assert whole == checksum(array) == checksum(np.asfortranarray(array))


def test_time_limit():
    """A checksum that takes too long is given up."""
    with pytest.raises(TimeoutError):
        fingerprint(np.zeros(10), Selection(), time.monotonic() - 1)


def test_names_of_leaves():
    """Leaves are named by their path; a list of numbers is one leaf."""
    assert ["a.b", "a[3]", "c", "d[0]", "d[1].e"] == names(
        {"a": {"b": 1, 3: 2}, "c": [1, 2], "d": [np.zeros(1), {"e": 0}]}
    )


def test_recursive_value():
    """A value that contains itself ends."""
    value: dict[str, Any] = {}
    value["self"] = value
    assert 1 == len(names(value))


def test_elements_are_shown():
    """The elements of a small selection are shown in full precision."""
    value = fingerprint(np.array([0.1, 0.2, 0.3]), Selection(0, 1, (1, 3)), FOREVER)
    assert value.leaf is not None
    assert ("0.2", "0.3") == value.leaf.shown


def test_missing_leaf():
    """A selection of elements of several leaves, or of none, is refused."""
    with pytest.raises(LookupError):
        fingerprint({"a": 1, "b": 2}, Selection(5, 6, (0, 1)), FOREVER)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int64", "bool", "complex64", "float8_e4m3fn"])
def test_tensors_of_all_kinds(dtype: str):
    """Tensors of all dtypes are compared bit by bit."""
    torch = library("torch")
    one = torch.tensor([1, 0, 1]).to(getattr(torch, dtype))
    assert checksum(one) == checksum(one.clone())
    assert checksum(one) != checksum(torch.tensor([1, 1, 1]).to(getattr(torch, dtype)))


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "int8"])
def test_bits_and_places(dtype: str):
    """One other bit in any element changes the checksum, and so do two elements, or signs, that change places."""
    torch = library("torch")
    value = torch.arange(100_000).remainder(113).to(getattr(torch, dtype))
    bits = value.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[value.element_size()])
    seen = {checksum(value)}
    for element in (0, 1, 65_535, 65_536, 99_999):
        for bit in range(8 * value.element_size() - 1):
            bits[element] ^= 1 << bit
            seen.add(checksum(value))
            bits[element] ^= 1 << bit
    swaps = [(0, 1), (0, 65_535), (1, 65_536), (2, 98_304), (65_535, 99_999)]
    for one, other in swaps:
        for negative in (False, True):
            changed = value.clone()
            changed[one], changed[other] = (-7, 7) if negative else (7, 9)
            seen.add(checksum(changed))
            changed[one], changed[other] = changed[other].clone(), changed[one].clone()
            seen.add(checksum(changed))
    assert 1 + 5 * (8 * value.element_size() - 1) + 4 * len(swaps) == len(seen)


def test_memory_that_is_not_aligned():
    """The checksum does not depend on where a tensor is in memory."""
    torch = library("torch")
    memory = bytearray(range(100))
    shifted = torch.frombuffer(memory, dtype=torch.uint8, offset=3, count=64)
    assert checksum(shifted.clone()) == checksum(shifted) == checksum(torch.arange(67, dtype=torch.uint8)[3:])


def test_changes_that_cancel_each_other_out():
    """Changes in several elements are noticed, also small ones in opposite directions, at places that are multiples."""
    torch = library("torch")
    value = torch.rand(64, generator=torch.Generator().manual_seed(1))
    seen = {checksum(value)}
    count = 1
    for place in range(63):
        for one, other in [(1, -1), (3, -1), (-3, 1), (2 * place + 3, -2 * place - 1)]:
            changed = value.clone()
            changed.view(torch.int32)[place] += one
            changed.view(torch.int32)[place + 1] += other
            seen.add(checksum(changed))
            count += 1
    assert count - 1 == len(seen)  # at place 0, (3, -1) is also the last pair


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")  # torch will remove them
def test_quantized_tensors():
    """Equal integers with another scale, zero point or dtype are another value."""
    torch = library("torch")
    ones = torch.ones(4)
    tensors = [torch.quantize_per_tensor(ones * scale, scale, zero, torch.qint8) for scale, zero in ((1, 0), (2, 0))]
    channels = [
        torch.quantize_per_channel(
            ones.reshape(2, 2) * scale, torch.ones(2) * scale, torch.zeros(2).long(), 0, torch.qint8
        )
        for scale in (1, 2)
    ]
    for one, other in (tensors, channels):
        assert torch.equal(one.int_repr(), other.int_repr())
        assert checksum(one) == checksum(one.clone()) != checksum(other)


def test_dataclass():
    """An instance of a dataclass is its fields, so that the elements of large arrays in it are compared."""

    @dataclass
    class Batch:
        inputs: Any
        number: int = 0

    large = np.zeros(5000)
    assert ["b.inputs", "b.number"] == names({"b": Batch(large)})
    changed = large.copy()
    changed[2000] = 1
    assert checksum(Batch(large)) != checksum(Batch(changed))


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")  # of torch, which warns once
def test_layouts_of_tensors():
    """A tensor without data has its shape; a sparse one its parts; a transposed one its own order."""
    torch = library("torch")
    assert checksum(torch.empty(3, device="meta")) == checksum(torch.empty(3, device="meta"))
    assert ["w.shape", "w.indices", "w.values"] == names({"w": torch.eye(3).to_sparse()})
    large = torch.eye(2000)
    large[1500, 1500] = 7
    for layout in (torch.sparse_csr, torch.sparse_csc):
        sparse = [matrix.to_sparse(layout=layout) for matrix in (torch.eye(2000), torch.eye(2000), large)]
        assert checksum(sparse[0]) == checksum(sparse[1]) != checksum(sparse[2])
    indices, values = torch.tensor([[0], [1]]), torch.ones(1)
    assert checksum(torch.sparse_coo_tensor(indices, values, (2, 2))) != checksum(
        torch.sparse_coo_tensor(indices, values, (3, 5))
    )
    assert checksum(torch.arange(6).reshape(2, 3).t()) == checksum(torch.arange(6).reshape(2, 3).t().contiguous())


def test_module():
    """A module is its parameters and buffers, without calling its `state_dict`, which may communicate."""
    torch = library("torch")
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    assert {"0.weight", "1.running_mean"} < set(names(module))


def test_tables():
    """A data frame is its columns."""
    pandas, polars = library("pandas"), library("polars")
    assert ["['a']", "['b']"] == names(pandas.DataFrame({"a": [1], "b": ["x"]}))
    assert checksum(pandas.DataFrame({"b": ["x"]})) != checksum(pandas.DataFrame({"b": ["y"]}))
    assert ["['a']"] == names(polars.DataFrame({"a": [1]}))


def test_nothing():
    """An empty value has a checksum, too."""
    assert Value(digest=checksum({}), leaves=0) == fingerprint({}, Selection(), FOREVER)
