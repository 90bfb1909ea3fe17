"""Elements of tensors and arrays as text, read from the memory of this process if there are only a few.

The memory is read directly. A tensor's methods, such as `tolist()`, would go through torch's dispatcher, where modes
of the job and graph tracers see each operation. The kernel copies the bytes, so memory that has been released, or a
mapped file that has become shorter, is an error here and does not end the job. No device is involved, because a
tensor on a device has no text.
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from relay_agent.job.signal_handlers import is_of_signal

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
    "uint64": "Q",
    "uint32": "I",
    "uint16": "H",
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
        size = value.element_size()
        strides = [stride * size for stride in value.stride()]
        if not has_memory(value):
            return ""
        return _read(value.data_ptr(), value.shape, strides, str(value.dtype).removeprefix("torch."), size)
    except Exception as error:  # a tensor without memory, such as those that `vmap` passes; a new dtype
        if is_of_signal(error):
            raise
        return ""


def has_memory(value: Any) -> bool:
    """Return whether all elements of an array have memory; FSDP releases that of parameters between uses."""
    if not hasattr(value, "untyped_storage"):
        return True
    size = value.element_size()
    available = value.untyped_storage().nbytes() - value.storage_offset() * size
    last = sum((length - 1) * stride for length, stride in zip(value.shape, value.stride(), strict=True))
    return (last + 1) * size <= available  # type: ignore[no-any-return]


def array_elements(value: Any) -> str:
    """Return the elements of a numpy array; "" if there are many, or if they are not numbers in the usual form."""
    kind = type(value)
    if (kind.__module__, kind.__name__) != ("numpy", "ndarray") or not 0 < value.size <= FEW:
        return ""
    if not value.dtype.isnative or value.dtype.name not in _FORMATS:
        return ""
    try:
        return _read(
            value.__array_interface__["data"][0], value.shape, value.strides, value.dtype.name, value.dtype.itemsize
        )
    except (AttributeError, OSError) as error:  # another system than Linux; no access
        if is_of_signal(error):
            raise
        return ""


def _read(address: int, shape: Sequence[int], strides: Sequence[int], dtype: str, size: int) -> str:
    """Return the elements at an address; distances are in bytes.

    Raises:
        AttributeError: this is not Linux.
        OSError: the memory cannot be read.
        KeyError: the dtype is unknown.
    """
    indices = itertools.product(*map(range, shape))
    offsets = (sum(map(int.__mul__, index, strides)) for index in indices)
    elements = [_element(_copy(address + offset, size), dtype) for offset in offsets]
    return nested(tuple(shape), iter(elements))


def _element(data: bytes, dtype: str) -> Any:
    if dtype == "bfloat16":  # the upper half of a float32
        return struct.unpack("<f", b"\0\0" + data)[0]
    return struct.unpack(f"={_FORMATS[dtype]}", data)[0]


def _copy(address: int, size: int) -> bytes:
    """Return bytes of this process's memory, through process_vm_readv(2)."""
    import ctypes  # noqa: PLC0415 - torch and numpy have imported it

    target = ctypes.create_string_buffer(size)
    # Each is a `struct iovec`: an address and a size, which have the same length.
    local, remote = ((ctypes.c_size_t * 2)(where, size) for where in (ctypes.addressof(target), address))
    read = ctypes.CDLL(None, use_errno=True).process_vm_readv
    read.restype = ctypes.c_ssize_t
    count = read(os.getpid(), local, ctypes.c_ulong(1), remote, ctypes.c_ulong(1), ctypes.c_ulong(0))
    if count != size:
        raise OSError(ctypes.get_errno(), "process_vm_readv")
    return target.raw


def nested(shape: Sequence[int], elements: Iterator[Any]) -> str:
    """Return elements in the order of a flat array as text with the brackets of a shape."""
    if not shape:
        element = next(elements)
        return f"{element:.6g}" if isinstance(element, float) else str(element)
    return f"[{', '.join(nested(shape[1:], elements) for _ in range(shape[0]))}]"


def exact_text(element: object, item_size: int) -> str:
    """Return an element as text; different elements have different texts."""
    return f"{element:.9g}" if isinstance(element, float) and item_size <= 4 else repr(element)[:80]
