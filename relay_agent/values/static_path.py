"""Reads attributes and elements of a value without executing the job's code, such as a property or `__getattr__`.

Python executes the code of a class in less obvious places, too: `isinstance` reads `__class__`, an attribute of a class
is read by its metaclass, even in `inspect.getattr_static`, and a lookup in a dictionary compares the key with other
keys. Here, a value's type is its `type`, the tables of a class are read with the descriptors of `type`, and
dictionaries are searched entry by entry.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeVar

from relay_agent.job.signal_handlers import is_of_signal

_C_TYPES = frozenset({"builtins", "numpy", "torch"})
"""Packages whose attributes in C, such as a tensor's `shape`, only read metadata."""
_MODULE_TABLES = ("_parameters", "_buffers", "_modules")
"""Where `torch.nn.Module` keeps what its `__getattr__` finds."""
_ATTEMPTS = 3
"""Attempts to read a container that the job changes meanwhile."""
MAX_FIRST = 200
"""Number of attributes of an object that are looked at; torch assigns the tables of a module first."""
_MISSING = object()
_Table = dict[Any, Any] | types.MappingProxyType[str, Any]
T = TypeVar("T")
_mro = vars(type)["__mro__"].__get__
_name = vars(type)["__name__"].__get__
_module = vars(type)["__module__"].__get__
_namespace = vars(type)["__dict__"].__get__


def read_path(value: Any, *steps: tuple[str, Any]) -> Any:
    """Return the value to which a path leads.

    Args:
        value: Where the path begins.
        steps: `("attribute", name)` or `("element", key)`; keys are of type str or int.

    Raises:
        LookupError: there is no such attribute or element.
        TypeError: reading it would execute code.
    """
    for kind, key in steps:
        value = _attribute(value, key) if kind == "attribute" else _element(value, key)
    return value


def _attribute(value: Any, name: str) -> Any:
    kind = type(value)
    is_class = issubclass(kind, type)
    if name == "__dict__" and not is_class and (table := instance_table(value)):
        return table
    own = class_entry(value, name, _MISSING) if is_class else entry(instance_table(value), name, _MISSING)
    by_type = class_entry(kind, name, _MISSING)
    has_priority = _has(by_type, "__get__") and (_has(by_type, "__set__") or _has(by_type, "__delete__"))
    if own is not _MISSING and not has_priority:
        if is_class and _has(own, "__get__"):
            raise _would_execute(f"'{name}'", value)
        return own
    return _of_module(value, name) if by_type is _MISSING else _by_descriptor(value, name, by_type)


def _by_descriptor(value: Any, name: str, found: Any) -> Any:
    """Return the attribute for which `found` is in the type of `value`."""
    kind = type(found)
    if kind is types.MemberDescriptorType or (kind is types.GetSetDescriptorType and _is_metadata(value, found)):
        try:
            return found.__get__(value)
        except AttributeError:  # the attribute is not set
            raise _no_attribute(name, value) from None
    if _has(found, "__get__"):  # a property, a method, a descriptor of any kind
        raise _would_execute(f"'{name}'", value)
    return found


def _of_module(value: Any, name: str) -> Any:
    """Return a parameter, buffer or submodule of a `torch.nn.Module`."""
    for entries in module_tables(value):
        if (found := entry(entries, name, _MISSING)) is not _MISSING:
            return found
    raise _no_attribute(name, value)


def module_tables(value: Any) -> list[dict[Any, Any]]:
    """Return the parameters, buffers and submodules of a `torch.nn.Module`, which are three tables."""
    tables = [entry(instance_table(value), table, most=MAX_FIRST) for table in _MODULE_TABLES]
    return [table for table in tables if issubclass(type(table), dict)]


def _element(value: Any, key: Any) -> Any:
    # The methods of the built-in types, because a subclass may override them: `defaultdict` inserts missing keys.
    kind = type(value)
    if issubclass(kind, dict):
        if (found := entry(value, key, _MISSING)) is _MISSING:
            raise LookupError(f"the {type_name(kind)} has no key {key!r} of type {type_name(type(key))}")
        return found
    for base in (list, tuple):
        if issubclass(kind, base) and type(key) is int:
            return base.__getitem__(value, key)
    if tables := module_tables(value):  # ModuleList, Sequential and ModuleDict keep their elements as submodules
        is_from_end = type(key) is int and key < 0
        return _of_module(value, str(key + dict.__len__(tables[-1]) if is_from_end else key))
    raise _would_execute(f"[{key!r}]", value)


def _is_metadata(value: Any, descriptor: types.GetSetDescriptorType) -> bool:
    return {package_of(type(value)), package_of(descriptor.__objclass__)} <= _C_TYPES


def type_name(kind: type) -> str:
    """Return the name of a class."""
    return str.__str__(_name(kind))


def package_of(kind: type) -> str:
    """Return the first part of the name of the module in which a class is defined."""
    return _module_name(kind).partition(".")[0]


def _module_name(kind: type) -> str:
    module = entry(_namespace(kind), "__module__")
    if module is None:  # a type in C
        module = _module(kind)
    return module if type(module) is str else ""


def module_table(kind: type) -> dict[Any, Any]:
    """Return the names of the module in which a class is defined; a lazy module is not loaded."""
    return instance_table(sys.modules.get(_module_name(kind)))


def is_of_its_module(kind: type) -> bool:
    """Return whether a class is what its module, a library, contains under its name; any class can name a module."""
    return dict.get(module_table(kind), type_name(kind)) is kind


def class_entry(kind: type, name: str, default: object = None) -> Any:
    """Return what a class or its bases contain under a name; `default` if there is nothing."""
    tables = (entry(_namespace(each), name, _MISSING) for each in _mro(kind))
    return next((found for found in tables if found is not _MISSING), default)


def attributes_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of the attributes that an object has in its `__dict__` and in slots."""
    first = list(islice(dict.items(instance_table(value)), MAX_FIRST))
    yield from ((name, found) for name, found in first if type(name) is str)
    for base in _mro(type(value)) if package_of(type(value)) != "builtins" else ():  # a frame has a dozen slots
        for name, found in list(_namespace(base).items()):
            if type(found) is types.MemberDescriptorType and type(name) is str and name[:2] != "__":
                try:
                    part = found.__get__(value)
                except AttributeError as error:  # the slot is empty
                    if is_of_signal(error):
                        raise
                else:
                    yield name, part


def _has(value: Any, name: str) -> bool:
    return class_entry(type(value), name, _MISSING) is not _MISSING


def instance_table(value: Any) -> dict[Any, Any]:
    """Return the `__dict__` of an instance; an empty one if there is none or a class of the job computes it."""
    found = class_entry(type(value), "__dict__")
    kind = type(found)
    if kind is not types.GetSetDescriptorType and kind is not types.MemberDescriptorType:  # a set would hash the class
        return {}
    try:
        table = found.__get__(value)
    except (AttributeError, TypeError):  # the descriptor belongs to another class
        return {}
    return table if issubclass(type(table), dict) else {}


def entry(table: _Table, key: str | int, default: object = None, *, most: int | None = None) -> Any:
    """Return the value of a key, or `default`; keys of other types, which compare in their own way, are left out.

    Args:
        table: The dictionary.
        key: The key.
        default: What is returned if the dictionary does not have the key.
        most: Number of entries that are looked at; None for all.

    Raises:
        LookupError: the job changes the dictionary continuously.
    """
    return unchanged(lambda: _search(table, key, default, most), "dictionary")


def unchanged(read: Callable[[], T], what: str) -> T:
    """Return what is read from a container while the job does not change it.

    Args:
        read: Reads it; raises RuntimeError if the container has changed meanwhile.
        what: What it is.

    Raises:
        LookupError: the job changes it continuously.
    """
    for _ in range(_ATTEMPTS):
        try:
            return read()
        except RuntimeError as error:
            if is_of_signal(error):
                raise
    raise LookupError(f"the job is changing the {what}")


def _search(table: _Table, key: str | int, default: object, most: int | None) -> Any:
    kind = type(key)
    entries: Any = table.items() if type(table) is types.MappingProxyType else dict.items(table)
    for known, found in islice(entries, most):
        if known is key or (issubclass(type(known), kind) and kind.__eq__(known, key)):
            return found
    return default


def _no_attribute(name: str, value: Any) -> LookupError:
    return LookupError(f"{type_name(type(value))} has no attribute '{name}' that can be read without executing code")


def _would_execute(what: str, value: Any) -> TypeError:
    return TypeError(f"reading {what} of {type_name(type(value))} would execute code")
