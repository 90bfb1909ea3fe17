"""Values as short text: tensors, arrays, tables and modules by type and shape, and others by their `repr`."""

from __future__ import annotations

import itertools
import math
import reprlib
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from relay_agent.job.signal_handlers import is_of_signal
from relay_agent.values.deadline import within_deadline
from relay_agent.values.elements import array_elements, tensor_elements
from relay_agent.values.static_path import type_name
from relay_agent.values.torch_state import untraced

# Short texts for tensors, arrays, tables and modules, based on their metadata.
#
# This module does not import a library, read an element on a device or wait for a device, so a value on a GPU with a
# hanging kernel is described as quickly as any other. A library's type is found in `KINDS` by its package name and its
# own name.

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
    return _cut(str(dtype).removeprefix("torch."), MAX_NAME)


def _joined(parts: Iterable[str]) -> str:
    return " ".join(part for part in parts if part)


def _tensor(value: Any) -> str:
    """Return, for example, `Tensor[8, 3, 224, 224] float32 cpu grad` or `1.0765 Tensor[] float32 cpu`."""
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
        parts.insert(0, tensor_elements(value))  # first, because editors cut long texts off
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
    return describe_module(type(value).__name__, value.parameters(), is_training=value.training)


def describe_module(name: str, parameters: Iterable[Any], *, is_training: bool) -> str:
    """Return, for example, `ResNet 11,689,512 parameters float32 cuda:0 training`."""
    number, first, is_complete = _count_elements(parameters)
    what = f"{number:,}{'' if is_complete else '+'} parameters"
    place = f"{_short(first.dtype)} {first.device}" if first is not None else ""
    return _joined([name, what, place, "training" if is_training else "eval"])


def _count_elements(parameters: Iterable[Any]) -> tuple[int, Any, bool]:
    """Return the number of elements in parameters, the first one, and whether all of them were counted."""
    number, first, is_complete = 0, None, True
    for index, parameter in enumerate(parameters):
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
    return _joined([array_elements(value), _shape(value), _short(value.dtype)])


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
    shown = repr(name)[:MAX_NAME] if type(name) is str and name else ""
    dtype = getattr(value, "dtype", "")
    return _joined([f"{type(value).__name__}[{len(value):,}]", _short(dtype), shown])


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
    ("polars", "LazyFrame"): lambda value: f"{type(value).__name__} (not computed)",
    ("jaxlib", "Array"): _jax_array,
    ("jaxlib", "ArrayImpl"): _jax_array,
    ("jax", "ArrayImpl"): _jax_array,
}
"""The key is the package and the name of a type; subclasses are shown in the same way."""


# Selects the values that are shown by a description instead of their `repr`.
#
# Such a description comes from the functions above, or from a function that the job has registered.

Present = Callable[[Any], str]
MAX_TEXT = 1000
"""Maximum number of characters in one text: a line in an editor's variables view."""

_registered: dict[type | str, Present] = {}
on_registration: list[Callable[[], None]] = []
"""Called after each registration."""


class Presenter(NamedTuple):
    """A function that describes values of a type."""

    present: Present
    is_fast: bool
    """True if the function only reads metadata of a known library; other code may take any amount of time."""


def present(kind: type | str, function: Present) -> None:
    """Show values of a type as the text that a function returns.

    Args:
        kind: A type, or its full name, such as "mylib.batch.Batch"; the type need not be imported. Subclasses are
            included.
        function: Called with the value, in a helper thread with a deadline.
    """
    _registered[kind] = function
    for notify in on_registration:
        notify()


def find_presenter(kind: type) -> Presenter | None:
    """Return the presenter for values of a type, or None if they are shown by their `repr`.

    Arrays of libraries that are not in `KINDS` are recognized by their attributes.
    """
    for base in kind.__mro__:
        name = f"{base.__module__}.{base.__qualname__}"
        found = _registered.get(base) or _registered.get(name)
        if found is not None:
            return Presenter(found, is_fast=False)
        known = KINDS.get((_package(base), base.__name__))
        if known is not None:
            # Describing a larger module takes longer.
            return Presenter(known, is_fast=_package(kind) == _package(base) and base.__name__ != "Module")
    # The scalars of numpy have these attributes, too.
    if hasattr(kind, "shape") and hasattr(kind, "dtype") and _package(kind) != "numpy":
        return Presenter(describe_array, is_fast=False)
    return None


def find_kind(kind: type) -> tuple[str, str] | None:
    """Return the package and name in `KINDS` of a type or its nearest base, or None."""
    names = ((_package(base), base.__name__) for base in kind.__mro__)
    return next((name for name in names if name in KINDS), None)


def describe(value: object) -> str | None:
    """Return the text for a value, or None if the value is shown by its `repr` or describing it failed."""
    presenter = find_presenter(type(value))
    if presenter is None:
        return None
    try:
        if presenter.is_fast:
            text = presenter.present(value)
        else:
            text = within_deadline(type(value), lambda: str(presenter.present(value)), what="its description")
    except Exception:  # noqa: BLE001 - the code of a job or of a library's new version
        return None
    return _cut(text, MAX_TEXT)


def _package(kind: type) -> str:
    return str(kind.__module__).partition(".")[0]


class ShownText:
    """A text that debuggers show as it is, because they show the `repr`: in place of a value, or as statistics."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


class Attributes:
    """An object in a copy that is shown without its own code.

    Args:
        name: The name of its class.
        entries: Copies of its attributes, by name; "" for one that is shown without its name.
    """

    def __init__(self, name: str, entries: Sequence[tuple[str, Any]]) -> None:
        self.name = name
        self.entries = entries


# Values as text of limited length, with tensors, arrays and tables described by type and shape.

MAX_ASKED = 2000
"""Maximum number of characters in a value that a client has requested."""
MAX_ITEMS = 100
FEW_ELEMENTS = 16
"""Maximum number of elements in an array whose contents are shown if a client has requested the value."""
MAX_BITS = 2126
"""Maximum size of an integer that is shown in decimal: 640 digits, which no job can forbid and which are quick."""
MAX_SORTED = 10_000
"""Maximum number of dict keys or set elements that are sorted."""
_VIEWS = frozenset(map(id, map(type, (vars(type).keys(), vars(type).values(), vars(type).items()))))
_DICTS = (dict, OrderedDict, defaultdict, Counter)


class ShortRepr(reprlib.Repr):
    """The standard library's short repr, with tensors, arrays and tables described by type and shape.

    Of a large value, only what is shown is read. What a signal handler of the job raises meanwhile is raised.

    Args:
        max_text: Maximum number of characters for each object and string.
        shows_few: Whether arrays of a few elements are shown by their contents, which may wait for a device.
        is_static: Whether the values are copies (`relay_agent.values.plain`), which are shown without code of the job.
    """

    def __init__(self, max_text: int, *, shows_few: bool = False, is_static: bool = False) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxstring = self.maxother = self.maxlong = max_text
        self._shows_few = shows_few
        self._is_static = is_static

    def repr_instance(self, x: Any, level: int) -> str:
        """Return the text of an object that is not of a built-in type."""
        kind: Any = type(x)
        try:
            if kind is Attributes:
                return self._attributes(x, level)
            presenter = None if self._is_static else find_presenter(kind)
            if presenter is not None and not (self._shows_few and has_few_elements(x)):
                return presenter.present(x)
            if id(kind) in _VIEWS:
                return f"{kind.__name__}({self.repr_list(list(itertools.islice(x, self.maxlist + 1)), level)})"
            if any(kind.__repr__ is each.__repr__ for each in _DICTS):
                return f"{kind.__name__}({self._entries(dict.items(x), level)})"
            return _cut(repr(x[: self.maxother] if kind in (bytes, bytearray) else x), self.maxother)
        except Exception as error:
            if is_of_signal(error):
                raise
            return f"<{type_name(kind)} instance at {id(x):#x}>"

    def _attributes(self, x: Attributes, level: int) -> str:
        if not x.entries:
            return f"<{x.name} object>"
        if level <= 0:
            return f"{x.name}(...)"
        shown = (
            f"{name}={text}" if name else text for name, text in ((n, self.repr1(v, level - 1)) for n, v in x.entries)
        )
        return f"{x.name}({', '.join(shown)})"

    def repr_int(self, x: int, level: int) -> str:
        """Return the text of an integer; a large one is in hexadecimal digits, which are quick and always allowed."""
        return super().repr_int(x, level) if x.bit_length() <= MAX_BITS else _cut(hex(x), self.maxlong)

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        """Return the text of a dict."""
        return self._entries(((key, x[key]) for key in _in_order(x)), level)

    def repr_set(self, x: set[Any] | frozenset[Any], level: int) -> str:
        """Return the text of a set."""
        return f"{{{self.repr_list(_in_order(x), level)[1:-1]}}}" if x else "set()"

    def repr_frozenset(self, x: frozenset[Any], level: int) -> str:
        """Return the text of a frozenset."""
        return f"frozenset({self.repr_set(x, level) if x else ''})"

    def _entries(self, entries: Iterable[tuple[Any, Any]], level: int) -> str:
        first = list(itertools.islice(entries, self.maxdict + 1))
        if first and level <= 0:
            return "{...}"
        shown = [f"{self.repr1(key, level - 1)}: {self.repr1(x, level - 1)}" for key, x in first[: self.maxdict]]
        return f"{{{', '.join(shown + ['...'] * (len(first) > self.maxdict))}}}"


def _in_order(parts: Collection[Any]) -> list[Any]:
    """Return the keys of a dict or the elements of a set in order; as they come if that fails or would take long."""
    try:
        return sorted(parts) if len(parts) <= MAX_SORTED else list(itertools.islice(parts, MAX_ITEMS + 1))
    except Exception as error:
        if is_of_signal(error):
            raise
        return list(parts)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def has_few_elements(value: Any) -> bool:
    """Return whether an array's contents are shown if a client has requested the value."""
    size: float = 1
    for length in getattr(value, "shape", None) or ():
        # To compare a symbol would make that a condition of what torch compiles.
        size *= length if type(length) is int else math.inf
    return hasattr(value, "dtype") and size <= FEW_ELEMENTS


def short_repr(value: object) -> str:
    """Return the text of a value that a client has requested."""
    with untraced():
        text = _asked.repr(value)
    return text if len(text) <= MAX_ASKED else _cut(text, MAX_TEXT)


_asked = ShortRepr(MAX_ASKED, shows_few=True)
_asked.maxlist = _asked.maxtuple = _asked.maxdict = _asked.maxdeque = MAX_ITEMS
