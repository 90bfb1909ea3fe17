"""Copies a value into built-in types, so that showing or comparing the copy executes no code of the job.

A `repr`, an iteration or a comparison executes methods of a class of the job. Here, containers are read with the
methods of the built-in types, and tensors and arrays, which are shown by their libraries, are taken as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import islice
from typing import Any

from relay_agent.values.presentation import ShownText
from relay_agent.values.static_path import instance_table, module_tables, package_of, read_path, type_name

MAX_PARTS = 100_000
"""Maximum number of parts of a value that is copied completely."""
MAX_DEPTH = 20
MAX_SHOWN, SHOWN_DEPTH = 10_000, 4
"""The same for a value that is shown; its text does not reach deeper."""
MODULE_TABLES = 3
"""Number of tables of a `torch.nn.Module`."""
MAX_NAMES = 30
"""Maximum number of attributes that are named in place of an object."""
_ATTEMPTS = 3
"""Copies of a container that the job changes meanwhile."""
_SCALARS = (bool, int, float, complex, str, bytes, type(None), type(...), range)
_ARRAYS = frozenset({("torch", "Tensor"), ("torch", "Parameter"), ("numpy", "ndarray"), ("numpy", "generic")})
_CONSTANTS = frozenset({("torch", "dtype"), ("torch", "device")})
_CONVERSIONS = ((str, str.__str__), (int, int.__index__), (float, float.__float__))


def read_plain(width: int | None, value: Any, *steps: tuple[str, Any]) -> Any:
    """Return a copy of the value to which a path leads.

    Args:
        width: Maximum number of elements that are copied from each container. Objects without a copy are replaced by a
            description. None to copy everything, for a comparison.
        value: Where the path begins.
        steps: As for `read_path`.

    Raises:
        LookupError: there is no such attribute or element, or the value is too large for a comparison.
        TypeError: reading or copying it would execute code.
    """
    return _Copy(width).of(read_path(value, *steps), 0)


class _Copy:
    def __init__(self, width: int | None) -> None:
        self._width = width
        self._limits = (MAX_PARTS, MAX_DEPTH) if width is None else (MAX_SHOWN, SHOWN_DEPTH)
        self._parts = 0

    def of(self, value: Any, depth: int) -> Any:
        self._parts += 1
        kind = type(value)
        if any(kind is each for each in _SCALARS) or _is_array(value):  # `in` would call a metaclass's __eq__
            return value
        for base, convert in _CONVERSIONS:
            if issubclass(kind, base):
                return convert(value)
        if self._parts > self._limits[0] or depth > self._limits[1]:
            if self._width is None:
                raise LookupError("the value has too many parts; choose one of them")
            return ShownText("...")
        return self._of_container(value, kind, depth + 1)

    def _of_container(self, value: Any, kind: type, depth: int) -> Any:
        if issubclass(kind, dict):
            return self._of_dict(value, depth)
        for base in (list, tuple, set, frozenset):
            if issubclass(kind, base):
                return base(self.of(part, depth) for part in self._first(base.__iter__, value))
        tables = module_tables(value)
        if len(tables) == MODULE_TABLES:
            return {name: part for table in tables for name, part in self._of_dict(table, depth).items()}
        return self._described(value, kind)

    def _of_dict(self, value: dict[Any, Any], depth: int) -> dict[Any, Any]:
        return {self.of(key, depth): self.of(part, depth) for key, part in self._first(dict.items, value)}

    def _first(self, iterate: Any, value: Any) -> list[Any]:
        """Return the elements that are copied; the job may add and remove some of them meanwhile."""
        for _ in range(_ATTEMPTS):
            try:
                return list(islice(iterate(value), MAX_PARTS + 1 if self._width is None else self._width))
            except RuntimeError:
                continue
        raise LookupError("the job is changing the value")

    def _described(self, value: Any, kind: type) -> ShownText:
        table: Iterable[Any] = () if issubclass(kind, type) else self._first(dict.__iter__, instance_table(value))
        names = ", ".join([name for name in table if type(name) is str][:MAX_NAMES])
        if self._width is None:
            hint = f"; compare one of its attributes: {names}" if names else ""
            raise TypeError(f"comparing an object of class {type_name(kind)} would execute code{hint}")
        return ShownText(f"<{type_name(kind)} object{f' with {names}' if names else ''}>")


def _is_array(value: Any) -> bool:
    """Return whether a value is shown by its library alone: a tensor or array of numbers."""
    package = package_of(type(value))
    if package not in {"torch", "numpy"} or not _is_of_its_module(type(value)):
        return False
    names = {(package, type_name(base)) for base in type.__dict__["__mro__"].__get__(type(value))}
    return bool(names & _CONSTANTS) or (bool(names & _ARRAYS) and not getattr(value.dtype, "hasobject", False))


def _is_of_its_module(kind: type) -> bool:
    """Return whether a class is what its module contains under its name; any class can state another module."""
    module = sys.modules.get(vars(type)["__module__"].__get__(kind))
    return module is not None and vars(module).get(type_name(kind)) is kind
