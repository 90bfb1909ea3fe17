"""Facts about the texts of tensors, arrays, tables and modules, with the real libraries."""

import subprocess
import sys
from typing import Any

import pytest

from relay_agent.values.presentation import describe
from tests.support.machine.deadline import DEADLINE


def shown(library: str, expression: str, **names: Any) -> str | None:
    """Describe the value of an expression; skip the test where its library is missing."""
    imported = pytest.importorskip(
        library, reason=f"{library} is missing: make extras installs it", exc_type=ImportError
    )
    return describe(eval(expression, {library: imported, **names}))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("torch.zeros(8, 3, 224, 224, requires_grad=True)", "Tensor[8, 3, 224, 224] float32 cpu grad"),
        ("torch.nn.Parameter(torch.zeros(5))", "Parameter[5] float32 cpu grad"),
        ("torch.empty(2, 5, device='meta')", "Tensor[2, 5] float32 meta"),
        ("torch.eye(3).to_sparse()", "Tensor[3, 3] float32 cpu sparse_coo nnz=3"),
        ("torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])", "Tensor[nested] float32 cpu"),
        ("torch.nn.Linear(3, 2)", "Linear 8 parameters float32 cpu training"),
        ("torch.nn.Linear(1000, 1000).half().eval()", "Linear 1,001,000 parameters float16 cpu eval"),
        ("torch.nn.ReLU()", "ReLU 0 parameters training"),
        ("torch.nn.LazyLinear(2).weight", "UninitializedParameter float32 cpu"),
    ],
)
@pytest.mark.filterwarnings("ignore")  # torch's own, about prototypes
def test_torch(expression: str, expected: str):
    """A tensor has its shape, dtype, device and layout, and whether it has gradients; a module its parameters."""
    assert expected == shown("torch", expression)


@pytest.mark.filterwarnings("ignore")  # quantized tensors are deprecated
def test_quantized_tensor():
    """A quantized tensor has its scheme."""
    quantized = "torch.quantize_per_tensor(torch.zeros(2, 2), 0.1, 0, torch.quint8)"
    assert "Tensor[2, 2] quint8 cpu per_tensor_affine" == shown("torch", quantized)


def test_fake_tensor():
    """A fake tensor, which has no data, is described like a real one."""
    mode = pytest.importorskip(
        "torch._subclasses.fake_tensor", reason="torch is missing: make extras installs it", exc_type=ImportError
    ).FakeTensorMode()
    with mode:
        assert "FakeTensor[3, 4] float32 cpu" == shown("torch", "torch.empty(3, 4)")


DISTRIBUTED = """
import sys
import torch
import torch.distributed
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
from relay_agent.values.presentation import describe
store = torch.distributed.HashStore()
torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
tensor = distribute_tensor(torch.zeros(8, 2), init_device_mesh("cpu", (1,)), [Shard(0)])
print(describe(tensor))
torch.distributed.destroy_process_group()
"""


@pytest.mark.job
def test_distributed_tensor():
    """A DTensor has its global shape, its placement on the mesh, and the shape of the local part."""
    pytest.importorskip("torch", reason="torch is missing: make extras installs it", exc_type=ImportError)
    run = subprocess.run(
        [sys.executable, "-c", DISTRIBUTED], capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert "DTensor[8, 2] float32 cpu S(0) of [1], local [8, 2]\n" == run.stdout, run.stderr


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("numpy.zeros((2, 3))", "ndarray[2, 3] float64"),
        ("numpy.zeros(2, dtype=[('a', 'f4')])", "ndarray[2] [('a', '<f4')]"),
        ("numpy.ma.zeros(3)", "MaskedArray[3] float64"),
        ("numpy.float32(2)", None),
    ],
)
def test_numpy(expression: str, expected: str | None):
    """An array has its shape and dtype; a number is shown as before."""
    assert expected == shown("numpy", expression)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("pandas.DataFrame({'a': [1, 2]})", "DataFrame 2 rows x 1 column"),
        ("pandas.DataFrame({'a': range(1000), 'b': 1})", "DataFrame 1,000 rows x 2 columns"),
        ("pandas.Series([1.0, 2.0], name='price')", "Series[2] float64 'price'"),
        ("pandas.RangeIndex(5)", "RangeIndex[5] int64"),
        ("polars.DataFrame({'a': [1]})", "DataFrame 1 row x 1 column"),
        ("polars.Series('s', [1, 2])", "Series[2] Int64 's'"),
        ("polars.DataFrame({'a': [1]}).lazy()", "LazyFrame (not computed)"),
    ],
)
def test_data_frames(expression: str, expected: str):
    """A data frame has its rows and columns, a series its length, dtype and name; a lazy frame is not computed."""
    assert expected == shown(expression.partition(".")[0], expression)


def test_jax():
    """An array has its shape, dtype and device."""
    assert "Array[2, 3] float32 cpu:0" == shown("jax", "jax.numpy.zeros((2, 3))").replace("TFRT_CPU_0", "cpu:0")
