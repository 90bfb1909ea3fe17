"""What a value consists of: tensors and arrays with their checksums and statistics, and anything else without parts."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from relay_agent.job.gevent_originals import time
from relay_agent.values import presentation
from relay_agent.values.deadline import TooLate, call_within
from relay_agent.values.elements import exact_text, has_memory, nested
from relay_agent.values.presentation import MAX_ASKED, MAX_ITEMS, ShownText, describe, find_kind, has_few_elements
from relay_agent.values.torch_state import NotRead
from relay_core.agent_api import evaluation
from relay_core.agent_api.evaluation import MAX_PARTS, PART_DIGITS, Selection, Value, part_bounds
from relay_core.value_parsers import parse_ranges

# What a value consists of: tensors and arrays, whose elements can be read in pieces, and anything else without parts.
#
# No library is imported; the types of libraries that the job has imported are found by name, as in `presentation`.

MAX_LEAVES = 100_000
"""Maximum number of leaves in one value; the largest models have about ten thousand tensors."""
MAX_DEPTH = 20
_SCALARS = (int, float, complex, bool, str, bytes, type(None))


class Leaf(NamedTuple):
    """A part of a value that is compared as a whole."""

    name: str
    """The path to the leaf, such as `layer.weight` or `[3]`; "" if the leaf is the whole value."""
    value: Any
    data: Data | None = None
    """Its elements; None if it is compared as text."""
    text: str = ""
    """The text; "" for its `repr`."""
    shard: str = ""
    """Description without elements if ranks hold different parts of it; "" otherwise."""
    holders: frozenset[int] = frozenset()
    """The ranks that are known to hold the same part."""


def flatten(value: object) -> Iterator[Leaf]:
    """Yield the leaves of a value, in their order in the value."""
    return itertools.islice(_flatten(value, "", 0), MAX_LEAVES)


def _flatten(value: Any, name: str, depth: int) -> Iterator[Leaf]:
    found = find_kind(type(value))
    if found is not None:
        yield from _of_library(value, name, *found)
    elif depth < MAX_DEPTH and (parts := _parts(value)) is not None:
        for key, part in parts:
            yield from _flatten(part, f"{name}{key}" if key.startswith("[") or not name else f"{name}.{key}", depth + 1)
    elif isinstance(value, (set, frozenset)):
        yield Leaf(name, value, text=f"{{{', '.join(sorted(map(repr, value)))}}}")
    else:
        yield Leaf(name, value)


def _parts(value: Any) -> Iterable[tuple[str, Any]] | None:
    """Return the parts of a container by name; None if it is a leaf."""
    if isinstance(value, Mapping):
        return ((key if isinstance(key, str) else f"[{key!r}]", part) for key, part in value.items())
    if isinstance(value, (list, tuple)) and not all(isinstance(part, _SCALARS) for part in value):
        return ((f"[{index}]", part) for index, part in enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    return None


def _of_library(value: Any, name: str, package: str, kind: str) -> Iterator[Leaf]:
    if package == "torch":
        yield from _of_torch(value, name, kind)
    elif kind == "DataFrame":
        for column in value.columns:
            yield _of_array(value[column].to_numpy(), f"{name}[{column!r}]")
    elif kind in {"Series", "Index"}:
        yield _of_array(value.to_numpy(), name)
    elif kind == "LazyFrame":
        yield Leaf(name, value)
    elif package == "numpy":
        yield _of_array(value, name)
    else:
        yield _of_array(value.__array__(), name)


def _of_array(array: Any, name: str) -> Leaf:
    if array.dtype.hasobject:
        return Leaf(name, array, text=f"{array.dtype} {array.tolist()!r}")
    return Leaf(name, array, _Array(array))


def _of_torch(value: Any, name: str, kind: str) -> Iterator[Leaf]:
    if kind == "Module":
        yield from _of_module(value, name)
        return
    if shard := _shard_of(value):
        tensor = value._local_tensor  # noqa: SLF001 - `to_local()` would compute
        holders = _holders_of(value)
        yield from (leaf._replace(shard=shard, holders=holders) for leaf in _of_torch(tensor, name, kind))
        return
    tensor = value._local_tensor if hasattr(value, "_local_tensor") else value  # noqa: SLF001 - as above
    layout = str(tensor.layout)
    if tensor.is_meta or type(tensor).__name__ == "FakeTensor" or kind == "UninitializedTensorMixin":
        yield Leaf(name, value, text=f"{tuple(tensor.shape)} {tensor.dtype} without data")
    elif layout in _SPARSE:
        yield Leaf(f"{name}.shape", value, text=f"{tuple(tensor.shape)} {layout}")
        parts = ((part.lstrip("_"), getattr(tensor, part)()) for part in _SPARSE[layout])
        yield from (Leaf(f"{name}.{part}", value, _Tensor(found)) for part, found in parts)
    elif tensor.is_quantized:
        yield Leaf(name, value, _Tensor(tensor.int_repr()))
        is_by_channel = "channel" in str(tensor.qscheme())
        names = _BY_CHANNEL if is_by_channel else ("q_scale", "q_zero_point")
        yield from _flatten(
            [str(tensor.dtype), *(getattr(tensor, each)() for each in names)], f"{name}.quantization", 0
        )
    elif layout != "torch.strided" or tensor.is_nested:
        yield Leaf(name, value)
    else:
        yield Leaf(name, value, _Tensor(tensor))


def _of_module(module: Any, name: str) -> Iterator[Leaf]:
    sharded = _sharded_by_fsdp1(module)
    for path, part in itertools.chain(module.named_parameters(), module.named_buffers()):
        leaves = _of_torch(part, f"{name}.{path}" if name else path, (find_kind(type(part)) or ("", "Tensor"))[1])
        shard = f"{part.dtype} sharded by FSDP" if id(part) in sharded else ""
        yield from (leaf._replace(shard=shard) for leaf in leaves) if shard else leaves


_BY_CHANNEL = ("q_per_channel_scales", "q_per_channel_zero_points")
_ROWS, _COLUMNS = ("crow_indices", "col_indices", "values"), ("ccol_indices", "row_indices", "values")
_SPARSE = {
    "torch.sparse_coo": ("_indices", "_values"),
    "torch.sparse_csr": _ROWS,
    "torch.sparse_bsr": _ROWS,
    "torch.sparse_csc": _COLUMNS,
    "torch.sparse_bsc": _COLUMNS,
}
"""What returns the parts of a sparse tensor as it is stored, by its layout."""


def _shard_of(value: Any) -> str:
    """Return shape, dtype and distribution of a DTensor of which ranks hold different parts; "" for other tensors."""
    if not hasattr(value, "_local_tensor") or not hasattr(value, "placements"):
        return ""
    mesh = tuple(value.device_mesh.shape)
    if all(placement.is_replicate() or size == 1 for placement, size in zip(value.placements, mesh, strict=True)):
        return ""
    placements = ", ".join(map(str, value.placements))
    return f"{list(value.shape)} {value.dtype} {placements} of {list(mesh)}".replace("torch.", "")


def _holders_of(value: Any) -> frozenset[int]:
    """Return the ranks that hold the same part of a DTensor: they differ only in places where it is replicated."""
    mesh = value.device_mesh
    place = mesh.get_coordinate()
    if place is None:  # this rank holds no part
        return frozenset()
    pairs = zip(value.placements, place, strict=True)
    index = tuple(slice(None) if placement.is_replicate() else at for placement, at in pairs)
    return frozenset(mesh.mesh[index].reshape(-1).tolist())


def _sharded_by_fsdp1(module: Any) -> set[int]:
    """Return the ids of the parameters that the first version of FSDP, which has no DTensors, has sharded."""
    found: set[int] = set()
    for part in module.modules():
        if any(base.__name__ == "FullyShardedDataParallel" for base in type(part).__mro__):
            handle = getattr(part, "_handle", None)  # None for a module without parameters of its own
            if handle is not None and handle.uses_sharded_strategy:
                found |= {id(handle.flat_param), *map(id, handle.flat_param._params or ())}  # noqa: SLF001 - as above
    return found


class _Flat:
    """Elements of something that is indexed like an array, read without copying all of it."""

    size: int
    item_size: int

    def __init__(self, array: Any) -> None:
        self.array = array
        self.kind = f"{tuple(array.shape)} {array.dtype}"
        """Shape and dtype as text."""

    def flat(self, start: int, stop: int) -> Any:
        """Return elements as a flat array; of an array that is not contiguous, only whole rows are copied."""
        array, dimensions = self.array, len(self.array.shape)
        if dimensions == 0:
            return array.reshape(1)[start:stop]
        row = 1
        for size in array.shape[1:]:
            row *= int(size)
        first = start // row
        rows = array[first : -(-stop // row)]
        return rows.reshape(-1)[start - first * row : stop - first * row]

    def show(self, start: int, stop: int) -> list[str]:
        """Return elements as text."""
        return [exact_text(element, self.item_size) for element in self.flat(start, stop).tolist()]


class _Array(_Flat):
    """Elements of a numpy array."""

    def __init__(self, array: Any) -> None:
        super().__init__(array)
        self.size, self.item_size = int(array.size), int(array.itemsize) or 1

    def hashable(self, start: int, stop: int) -> bytes:
        """Return the elements themselves, as bytes."""
        return self.flat(start, stop).tobytes()  # type: ignore[no-any-return] # of numpy

    def numbers(self, start: int, stop: int) -> Any:
        """Return elements as a flat numpy array of float64; for complex elements, return their magnitudes."""
        flat = self.flat(start, stop)
        return (abs(flat) if flat.dtype.kind == "c" else flat).astype("float64")


class _Tensor(_Flat):
    """Elements of a tensor."""

    def __init__(self, tensor: Any) -> None:
        super().__init__(tensor.detach().resolve_conj().resolve_neg())
        self.kind = f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
        self.size, self.item_size = int(tensor.numel()), int(tensor.element_size())

    def hashable(self, start: int, stop: int) -> bytes:
        """Return the sum of hash values, each of eight bytes and their place; a CPU needs half the time of `hashlib`.

        The tensor's device computes it. A plain or weighted sum of the bits would not notice small changes of several
        elements that cancel each other out.
        """
        torch: Any = sys.modules["torch"]  # there is a tensor, so the job has imported it
        flat = self.flat(start, stop)
        if flat.stride(0) != 1:  # also true for some with a single element, which count as contiguous
            flat = flat.clone(memory_format=torch.contiguous_format)
        data = flat.view(torch.uint8)
        if len(data) % WORD or data.storage_offset() % WORD or data.data_ptr() % WORD:
            data = data.new_zeros(len(data) + -len(data) % WORD)
            data[: self.item_size * len(flat)] = flat.view(torch.uint8)
        words = data.view(torch.int64)
        size = CPU_WORDS if flat.device.type == "cpu" else DEVICE_WORDS
        places = torch.arange(min(len(words), size), dtype=torch.int64, device=flat.device)
        sums = []
        for number, piece in enumerate(words.split(size)):
            mixed = places[: len(piece)] + number * size
            mixed *= GOLDEN
            mixed += piece
            for factor in MIX:
                mixed *= factor
                mixed ^= mixed >> HALF
            sums.append(mixed.sum())
        return str(int(torch.stack(sums).sum())).encode()

    def numbers(self, start: int, stop: int) -> Any:
        """Return elements as a flat numpy array of float64; for complex elements, return their magnitudes."""
        flat = self.flat(start, stop).cpu()
        return (flat.abs() if flat.is_complex() else flat).double().numpy()


Data = _Array | _Tensor


# Checksums of values that may be gigabytes in size: of the tensors and arrays in a value, or of part of a single one.
#
# A value is flattened into leaves: dicts, sequences, modules and tables are replaced by what they contain; everything
# else is a leaf. Tensors and arrays are compared bit by bit, with shape and dtype; other leaves by their `repr`. A
# tensor of which the ranks hold different parts is compared by its description only.

PIECE = 16 * 1024 * 1024
"""Number of bytes of which a checksum is computed at once."""
WORD, HALF = 8, 32
"""Bytes that are hashed together, and half as many bits."""
CPU_WORDS, DEVICE_WORDS = 16 * 1024, 1024 * 1024
"""How many words are hashed at once: on a CPU, so few stay in its cache, and torch uses no further threads."""
GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
MIX = (0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64))
"""The constants of SplitMix64, as numbers with a sign (https://doi.org/10.1145/2714064.2660195)."""
MAX_SHOWN = 200
"""Maximum number of characters shown for a leaf that is compared as text."""
DIGEST_DIGITS = 16
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Part of a default `repr` that differs in each process."""


def fingerprint(value: object, selection: Selection, until: float, ranks: str = "all") -> Value:
    """Return the checksums of a selection and of its parts, and the leaf if the selection is a single leaf.

    Args:
        value: Any value.
        selection: What to compare.
        until: When to give up, in seconds of `time.monotonic`.
        ranks: The ranks whose values are compared, as in `Evaluate`.

    Raises:
        TimeoutError: computing the checksums took too long.
        LookupError: the value has no such part.
        ValueError: the value has too many parts.
    """
    leaves = [leaf._replace(shard="") if _is_common(leaf, ranks) else leaf for leaf in flatten(value)]
    if len(leaves) == MAX_LEAVES:
        raise ValueError(f"the value has {MAX_LEAVES:,} parts or more")
    stop = len(leaves) if selection.stop is None else min(selection.stop, len(leaves))
    chosen = leaves[selection.start : stop]
    if len(chosen) == 1:
        found = _of_leaf(chosen[0], selection.elements, until)
    elif selection.elements is not None:
        raise LookupError("the value has no such part")
    else:
        digests = [_of_leaf(leaf, None, until).digest for leaf in chosen]
        parts = [digests[first:last] for first, last in part_bounds(0, len(digests))]
        found = Value(digest=_digest(*digests), parts=tuple(_digest(*part)[:PART_DIGITS] for part in parts))
    is_whole = selection.elements is None and len(chosen) == len(leaves)
    return replace(found, leaves=len(leaves), sharded=sum(bool(leaf.shard) for leaf in leaves) if is_whole else 0)


def _is_common(leaf: Leaf, ranks: str) -> bool:
    """Return whether all chosen ranks hold the same part of a sharded tensor."""
    if not leaf.holders or ranks == "all":
        return False
    chosen = itertools.chain(*parse_ranges(ranks, what="list of ranks", example="0,3-5"))
    return all(rank in leaf.holders for rank in chosen)


def _of_leaf(leaf: Leaf, elements: tuple[int, int] | None, until: float) -> Value:
    if time.monotonic() > until:
        raise TimeoutError
    if leaf.data is None or leaf.shard:
        text = leaf.shard or _ADDRESS.sub("", leaf.text or repr(leaf.value))
        return Value(digest=_digest(leaf.name, text), leaf=evaluation.Leaf(leaf.name, text[:MAX_SHOWN]))
    size = leaf.data.size
    start, stop = (0, size) if elements is None else (min(elements[0], size), min(elements[1], size))
    parts = [_digest_of_elements(leaf, first, last, until) for first, last in part_bounds(start, stop)]
    shown = tuple(leaf.data.show(start, stop)) if elements and stop - start <= MAX_PARTS else ()
    return Value(
        digest=_digest(leaf.name, leaf.data.kind, *parts),
        parts=tuple(part[:PART_DIGITS] for part in parts),
        leaf=evaluation.Leaf(leaf.name, leaf.data.kind, size, shown),
    )


def _digest_of_elements(leaf: Leaf, start: int, stop: int, until: float) -> str:
    assert leaf.data is not None  # noqa: S101 - its caller has checked that
    hashed = hashlib.blake2b(digest_size=DIGEST_DIGITS // 2)
    step = max(1, PIECE // leaf.data.item_size)
    for first in range(start, stop, step):
        if time.monotonic() > until:
            raise TimeoutError
        hashed.update(leaf.data.hashable(first, min(first + step, stop)))
    return hashed.hexdigest()


def _digest(*texts: str) -> str:
    hashed = hashlib.blake2b(digest_size=DIGEST_DIGITS // 2)
    for text in texts:
        hashed.update(text.encode(errors="backslashreplace") + b"\0")
    return hashed.hexdigest()


# The bits of a value that is shown as text, which are compared because its text does not show all digits.
#
# The value is walked as its text is, so that no code of the job is executed. Of a large tensor or array, only elements
# in this process's memory are read: of one on a device, the text does not wait for the device either.

MAX_READ = 1024 * 1024
"""Number of bytes that are read of a value: they take about 2 ms."""


def in_full(value: object) -> tuple[str, str]:
    """Return the text of a value with all digits, and the checksum of its tensors and arrays; "" if it has none."""
    reader = _InFull()
    try:
        text = reader.repr(value)
    except Exception:  # noqa: BLE001 - a tensor without memory, such as those that `vmap` passes; a new kind
        return "", ""
    return (text[:MAX_ASKED], reader.hashed.hexdigest()) if reader.left < MAX_READ else ("", "")


class _InFull(presentation.ShortRepr):
    def __init__(self) -> None:
        super().__init__(MAX_ASKED)
        self.maxlist = self.maxtuple = self.maxdict = MAX_ITEMS
        self.hashed = hashlib.blake2b(digest_size=DIGEST_DIGITS // 2)
        self.left = MAX_READ

    def repr_instance(self, x: Any, level: int) -> str:
        """Return the text of an object that is not of a built-in type."""
        if type(x) is presentation.Attributes:
            x = tuple(value for _, value in x.entries)
        bases: tuple[tuple[Any, Any], ...] = ((dict, dict.items), (list, list.__iter__), (tuple, tuple.__iter__))
        for base, parts in bases:  # such as OrderedDict and named tuples
            if issubclass(type(x), base):
                return self.repr1(base(itertools.islice(parts(x), MAX_ITEMS + 1)), level)
        if (data := _data_in_memory(x)) is None:
            return repr(x) if type(x).__module__ == "numpy" else f"<{type(x).__name__}>"
        stop = min(data.size, self.left // data.item_size)
        self.left -= stop * data.item_size
        self.hashed.update(data.hashable(0, stop))
        shown = nested(x.shape, iter(data.show(0, data.size))) if has_few_elements(x) else ""
        return f"{shown} {presentation.describe_array(x)}".lstrip()


def _data_in_memory(value: Any) -> Data | None:
    """Return the elements of a tensor or array, if reading them waits for no device or its text reads them too."""
    found = find_kind(type(value))
    is_known = found in {("torch", "Tensor"), ("numpy", "ndarray")} and str(getattr(value, "device", "cpu")) == "cpu"
    if found and (has_few_elements(value) or (is_known and has_memory(value))):
        leaves = list(itertools.islice(_of_library(value, "", *found), 2))
        return leaves[0].data if len(leaves) == 1 and not leaves[0].shard else None
    return None


# Statistics of a tensor or an array, on request and with a deadline: minimum, maximum, mean and number of NaNs.
#
# The elements are read in pieces, so that a device with little free memory suffices. NaN and infinite elements are
# counted, and left out of the other figures.

STATS_SECONDS = 5.0
"""Time limit in seconds."""
STATISTICS_PIECE = 4 * 1024 * 1024
"""Number of elements that are converted at once."""


def compute_statistics(value: object, seconds: float = STATS_SECONDS) -> ShownText:
    """Return the statistics of each tensor and array in a value, one line each.

    Args:
        value: A tensor, an array, or something that contains them, such as a module.
        seconds: Time limit; if it is exceeded, the last line states this.
    """
    until = time.monotonic() + seconds
    lines: list[str] = []
    try:
        call_within(seconds, lambda: _fill(lines, value, until))
    except (TooLate, TimeoutError):
        lines.append(f"incomplete: computing the statistics took longer than {seconds:g} s")
    except NotRead as error:
        lines.append(f"incomplete: {error}")
    except Exception as error:  # noqa: BLE001 - the code of a library or a job
        lines.append(f"incomplete: {type(error).__name__}: {error}")
    return ShownText("\n".join(lines) or f"not a tensor or an array: {type(value).__name__}")


def _fill(lines: list[str], value: object, until: float) -> None:
    for leaf in flatten(value):
        if leaf.data is not None:
            what = leaf.name or describe(value) or type(value).__name__
            lines.append(f"{what}: {_line(leaf.data, until)}")


def _line(data: Data, until: float) -> str:
    """Return, for example, `min -0.5 max 3.25 mean 0.125, 2 NaN of 4,096`."""
    finite, infinite, total = 0, 0, 0.0
    low, high = math.inf, -math.inf
    for start in range(0, data.size, STATISTICS_PIECE):
        if time.monotonic() > until:
            raise TimeoutError
        numbers: Any = data.numbers(start, min(start + STATISTICS_PIECE, data.size))
        usable = numbers[abs(numbers) < math.inf]
        finite += len(usable)
        infinite += int((abs(numbers) == math.inf).sum())
        if len(usable):
            low, high, total = (
                min(low, float(usable.min())),
                max(high, float(usable.max())),
                total + float(usable.sum()),
            )
    counts = ((data.size - finite - infinite, "NaN"), (infinite, "infinite"))
    odd = "".join(f", {number:,} {what}" for number, what in counts if number)
    if not finite:
        return f"no finite elements{odd} of {data.size:,}"
    return f"min {low:.6g} max {high:.6g} mean {total / finite:.6g}{odd} of {data.size:,}"
