"""Reads attributes and elements of a value without executing the job's code, such as a property or `__getattr__`."""

from __future__ import annotations

import inspect
import types
from typing import Any

__all__ = ["read_path"]

_C_TYPES = frozenset({"builtins", "numpy", "torch"})
"""Packages whose attributes in C, such as a tensor's `shape`, only read metadata."""
_MODULE_TABLES = ("_parameters", "_buffers", "_modules")
"""Where `torch.nn.Module` keeps what its `__getattr__` finds."""
_MISSING = object()


def read_path(value: Any, *steps: tuple[str, Any]) -> Any:
    """Return the value to which a path leads.

    Args:
        value: Where the path begins.
        steps: `("attribute", name)` or `("element", key)`; keys are constants.

    Raises:
        LookupError: there is no such attribute or element.
        TypeError: reading it would execute code.
    """
    for kind, key in steps:
        value = _attribute(value, key) if kind == "attribute" else _element(value, key)
    return value


def _attribute(value: Any, name: str) -> Any:
    found = inspect.getattr_static(value, name, _MISSING)
    if found is _MISSING:
        return _of_module(value, name)
    kind = type(found)
    if kind is types.MemberDescriptorType or (kind is types.GetSetDescriptorType and _is_metadata(value, found)):
        return found.__get__(value, type(value))
    if inspect.getattr_static(kind, "__get__", None) is not None:  # a property, a method, a descriptor of any kind
        raise TypeError(f"reading '{name}' of {type(value).__name__} would execute code")
    return found


def _is_metadata(value: Any, descriptor: types.GetSetDescriptorType) -> bool:
    packages = {_package(type(value)), _package(descriptor.__objclass__)}
    return packages <= _C_TYPES


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _of_module(value: Any, name: str) -> Any:
    """Return a parameter, buffer or submodule of a `torch.nn.Module`."""
    for table in _MODULE_TABLES:
        entries = inspect.getattr_static(value, table, None)
        if isinstance(entries, dict) and (found := dict.get(entries, name, _MISSING)) is not _MISSING:
            return found
    raise LookupError(f"{type(value).__name__} has no attribute '{name}' that can be read without executing code")


def _element(value: Any, key: Any) -> Any:
    # The methods of the built-in types, because a subclass may override them: `defaultdict` inserts missing keys.
    if isinstance(value, dict):
        if (found := dict.get(value, key, _MISSING)) is _MISSING:
            raise LookupError(f"the {type(value).__name__} has no key {key!r}")
        return found
    if isinstance(value, list) and type(key) is int:
        return list.__getitem__(value, key)
    if isinstance(value, tuple) and type(key) is int:
        return tuple.__getitem__(value, key)
    raise TypeError(f"reading [{key!r}] of {type(value).__name__} would execute code")
