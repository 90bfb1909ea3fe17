"""The elements of a tensor or array that has only a few and is in the memory of this process, as text.

A tensor's memory is read directly. Its methods, such as `tolist()`, would go through torch's dispatcher, where modes of
the job and graph tracers see each operation. No device is involved, because a tensor on a device has no text.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from typing import Any

__all__ = ["array_elements", "tensor_elements"]

FEW = 4
"""Maximum number of elements that are shown."""
_FORMATS = {
    "float64": "d",
    "float32": "f",
    "float16": "e",
    "int64": "q",
    "int32": "i",
    "int16": "h",
    "int8": "b",
    "uint8": "B",
    "bool": "?",
}
"""Formats of `struct` by dtype."""


def tensor_elements(value: Any) -> str:
    """Return the elements of a strided CPU tensor, such as `1.0765` or `[1, 2]`; "" if there are many.

    The text is also "" if the elements cannot be read, and for subclasses, whose memory can have any meaning.
    """
    kind = type(value)
    is_plain = kind.__module__.partition(".")[0] == "torch" and kind.__name__ in {"Tensor", "Parameter"}
    if not is_plain or value.device.type != "cpu" or not 0 < value.numel() <= FEW or value.is_neg():
        return ""
    try:
        return _text(tuple(value.shape), iter(_read(value)))
    except Exception:  # noqa: BLE001 - a tensor without memory, such as those that `vmap` passes; a new dtype
        return ""


def array_elements(value: Any) -> str:
    """Return the elements of a numpy array; "" if there are many, or if they are not numbers."""
    kind = type(value)
    if (kind.__module__, kind.__name__) != ("numpy", "ndarray") or not 0 < value.size <= FEW:
        return ""
    return _text(value.shape, iter(value.ravel().tolist())) if value.dtype.kind in "biuf" else ""


def _read(value: Any) -> list[Any]:
    """Return the elements, the last dimension varying fastest.

    Raises:
        ValueError: the memory has been released, as FSDP does between uses.
    """
    import ctypes  # noqa: PLC0415 - torch has imported it

    name = str(value.dtype).removeprefix("torch.")
    size, base, available = value.element_size(), value.data_ptr(), value.untyped_storage().nbytes()
    found: list[Any] = []
    for index in itertools.product(*map(range, value.shape)):
        offset = sum(map(int.__mul__, index, value.stride())) * size
        if not base or offset + size + value.storage_offset() * size > available:
            raise ValueError("no memory")
        data = ctypes.string_at(base + offset, size)
        if name == "bfloat16":  # the upper half of a float32
            found += struct.unpack("<f", b"\0\0" + data)
        else:
            found += struct.unpack(f"={_FORMATS[name]}", data)
    return found


def _text(shape: Sequence[int], elements: Any) -> str:
    if not shape:
        element = next(elements)
        return f"{element:.6g}" if isinstance(element, float) else str(element)
    return f"[{', '.join(_text(shape[1:], elements) for _ in range(shape[0]))}]"
