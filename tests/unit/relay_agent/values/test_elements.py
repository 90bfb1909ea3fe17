"""Facts about the elements that are shown of small tensors and arrays, with the real libraries."""

import os
from pathlib import Path
from typing import Any

import pytest

from relay_agent.values.presentation import describe


def torch() -> Any:
    """Return the library; skip the test where it is missing."""
    return pytest.importorskip("torch", reason="torch is missing: make extras installs it", exc_type=ImportError)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("torch.tensor(1.0765)", "1.0765 Tensor[] float32 cpu"),
        ("torch.tensor(3)", "3 Tensor[] int64 cpu"),
        ("torch.tensor([1.5, float('nan')], dtype=torch.bfloat16)", "[1.5, nan] Tensor[2] bfloat16 cpu"),
        ("torch.tensor([[True, False]])", "[[True, False]] Tensor[1, 2] bool cpu"),
        ("torch.arange(6).reshape(2, 3).T[1:, :1]", "[[1], [2]] Tensor[2, 1] int64 cpu"),
        ("torch.ones(1).expand(4)", "[1, 1, 1, 1] Tensor[4] float32 cpu"),
        ("torch.nn.Parameter(torch.zeros(1))", "[0] Parameter[1] float32 cpu grad"),
        ("torch.zeros(5)", "Tensor[5] float32 cpu"),
        ("torch.zeros(0)", "Tensor[0] float32 cpu"),
        ("torch.empty((), device='meta')", "Tensor[] float32 meta"),
        ("torch.tensor(2 + 3j).conj().imag", "Tensor[] float32 cpu"),
    ],
)
def test_tensors(expression: str, expected: str):
    """A tensor of up to four elements on the CPU has its elements, however its memory is laid out."""
    assert expected == describe(eval(expression, {"torch": torch()}))


def test_released_memory():
    """Memory that has been released, as FSDP does between uses, is not read."""
    tensor = torch().ones(2)
    tensor.untyped_storage().resize_(0)
    assert "Tensor[2] float32 cpu" == describe(tensor)


def test_mapped_file_that_has_become_shorter(tmp_path: Path):
    """Memory whose file was truncated has no text; an ordinary access to it would end the process."""
    numpy = pytest.importorskip("numpy", reason="numpy is missing", exc_type=ImportError)
    file = tmp_path / "data"
    file.write_bytes(bytes(8192))
    array = numpy.asarray(numpy.memmap(file, dtype="float32", mode="r"))[1500:1502]
    assert "[0, 0] ndarray[2] float32" == describe(array)
    os.truncate(file, 0)
    assert "ndarray[2] float32" == describe(array)


def test_no_operation():
    """Reading elements is not an operation that modes of the job or transformations of torch could see."""
    library, seen = torch(), []
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, *_arguments: Any, **_named: Any) -> Any:
            seen.append(function)

    tensor = library.ones(2)
    with Mode():
        shown = describe(tensor)
    assert ([], "[1, 1] Tensor[2] float32 cpu") == (seen, shown)
    library.vmap(lambda part: seen.append(describe(part)) or part)(library.ones(3, 2))
    assert ["Tensor[2] float32 cpu"] == seen


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("numpy.array(2.5)", "2.5 ndarray[] float64"),
        ("numpy.array([1, 2])[::-1]", "[2, 1] ndarray[2] int64"),
        ("numpy.zeros(5)", "ndarray[5] float64"),
        ("numpy.array([object()])", "ndarray[1] object"),
        ("numpy.ma.zeros(1)", "MaskedArray[1] float64"),
    ],
)
def test_arrays(expression: str, expected: str):
    """An array of up to four numbers has its elements."""
    numpy = pytest.importorskip("numpy", reason="numpy is missing", exc_type=ImportError)
    assert expected == describe(eval(expression, {"numpy": numpy}))
