"""Short texts for tensors, arrays, tables and modules, based on their metadata.

This module does not import a library, read an element on a device or wait for a device, so a value on a GPU with a
hanging kernel is described as quickly as any other. A library's type is found in `KINDS` by its package name and its
own name.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from relay_agent.values.elements import array_elements, tensor_elements

__all__ = ["KINDS", "count_parameters", "describe_array"]

MAX_DIMENSIONS = 16
"""Maximum number of dimensions shown; more than any program uses intentionally."""
MAX_NAME = 60
"""Maximum number of characters in a dtype; the dtype of a structured array names all its fields."""
MAX_PARAMETERS = 200_000
"""Maximum number of parameters (tensors) that are counted; the largest models have a few thousand."""


def _shape(value: Any) -> str:
    sizes = [str(size) for size in itertools.islice(value.shape, MAX_DIMENSIONS)]
    return f"{type(value).__name__}[{', '.join(sizes)}]"


def _short(dtype: object) -> str:
    text = str(dtype).removeprefix("torch.")
    return text if len(text) <= MAX_NAME else f"{text[: MAX_NAME - 3]}..."


def _joined(parts: Iterable[str]) -> str:
    return " ".join(part for part in parts if part)


def _tensor(value: Any) -> str:
    """Return, for example, `Tensor[8, 3, 224, 224] float32 cpu grad` or `Tensor[] float32 cpu 1.0765`."""
    if value.is_nested and "jagged" not in str(value.layout):
        shape = f"{type(value).__name__}[nested]"
    else:
        shape = _shape(value)
    layout = str(value.layout).removeprefix("torch.")
    parts = [shape, _short(value.dtype), str(value.device)]
    if layout != "strided":
        parts.append(layout)
    if layout.startswith("sparse") and value.device.type != "meta":
        parts.append(f"nnz={value._nnz()}")  # noqa: SLF001 - the name of torch's own API; a size that the host knows
    if value.is_quantized:
        parts.append(str(value.qscheme()).removeprefix("torch."))
    parts.append("grad" if value.requires_grad else "")
    if layout == "strided" and not value.is_quantized:
        parts.append(tensor_elements(value))
    return _joined(parts)


def _dtensor(value: Any) -> str:
    """Return the global shape, and how it is distributed: `DTensor[16, 8] float32 cpu S(0) of [4], local [4, 8]`."""
    placements = ", ".join(str(placement) for placement in value.placements)
    local = ", ".join(str(size) for size in value._local_tensor.shape)  # noqa: SLF001 - `to_local()` would compute
    mesh = ", ".join(str(size) for size in value.device_mesh.shape)
    grad = "grad" if value.requires_grad else ""
    return _joined(
        [_shape(value), _short(value.dtype), str(value.device), grad, f"{placements} of [{mesh}], local [{local}]"]
    )


def _uninitialized(value: Any) -> str:
    return f"{type(value).__name__} {_short(value.dtype)} {value.device}"


def _module(value: Any) -> str:
    """Return, for example, `ResNet 11,689,512 parameters float32 cuda:0 training`."""
    number, first, is_complete = count_parameters(value)
    what = f"{number:,}{'' if is_complete else '+'} parameters"
    place = f"{_short(first.dtype)} {first.device}" if first is not None else ""
    return _joined([type(value).__name__, what, place, "training" if value.training else "eval"])


def count_parameters(module: Any) -> tuple[int, Any, bool]:
    """Return the number of elements in a module's parameters, the first one, and whether all of them were counted."""
    number, first, is_complete = 0, None, True
    for index, parameter in enumerate(module.parameters()):
        if index == MAX_PARAMETERS:
            return number, first, False
        first = parameter if first is None else first
        if type(parameter).__name__.startswith("Uninitialized"):
            is_complete = False
        else:
            number += parameter.numel()
    return number, first, is_complete


def describe_array(value: Any) -> str:
    """Return, for example, `ndarray[300, 200] float32`, with the device if the library has devices."""
    return _joined([_shape(value), _short(value.dtype), str(getattr(value, "device", ""))])


def _array(value: Any) -> str:
    return _joined([_shape(value), _short(value.dtype), array_elements(value)])


def _jax_array(value: Any) -> str:
    """Return, for example, `Array[8, 3] float32 TFRT_CPU_0`."""
    if value.is_deleted():
        return f"{_array(value)} deleted".replace("ArrayImpl", "Array", 1)
    devices = sorted(map(str, value.sharding.device_set))
    place = devices[0] if len(devices) == 1 else f"{len(devices)} devices"
    return f"{_array(value)} {place}".replace("ArrayImpl", "Array", 1)


def _table(value: Any) -> str:
    rows, columns = value.shape
    return f"{type(value).__name__} {_counted(rows, 'row')} x {_counted(columns, 'column')}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _column(value: Any) -> str:
    """Return, for example, `Series[1,000] float64 'price'`."""
    name = getattr(value, "name", None)
    shown = repr(name)[:MAX_NAME] if isinstance(name, str) and name else ""
    dtype = getattr(value, "dtype", "")
    return _joined([f"{type(value).__name__}[{len(value):,}]", _short(dtype), shown])


def _lazy(value: Any) -> str:
    return f"{type(value).__name__} (not computed)"


KINDS: dict[tuple[str, str], Callable[[Any], str]] = {
    ("torch", "UninitializedTensorMixin"): _uninitialized,
    ("torch", "DTensor"): _dtensor,
    ("torch", "Tensor"): _tensor,
    ("torch", "Module"): _module,
    ("numpy", "ndarray"): _array,
    ("pandas", "DataFrame"): _table,
    ("pandas", "Series"): _column,
    ("pandas", "Index"): _column,
    ("polars", "DataFrame"): _table,
    ("polars", "Series"): _column,
    ("polars", "LazyFrame"): _lazy,
    ("jaxlib", "Array"): _jax_array,
    ("jaxlib", "ArrayImpl"): _jax_array,
    ("jax", "ArrayImpl"): _jax_array,
}
"""The key is the package and the name of a type; subclasses are shown in the same way."""
