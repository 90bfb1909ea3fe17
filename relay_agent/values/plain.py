"""Copies a value into built-in types, so that showing or comparing the copy executes no code of the job.

A `repr`, an iteration or a comparison executes methods of a class of the job. Here, containers are read with the
methods of the built-in types. In a copy to be shown, an object is replaced by its class and its attributes, tensors and
arrays are described by their libraries, and secrets (`secrets.is_secret`) and the values of secret environment
variables are replaced. In a copy to be compared, tensors, arrays and modules are taken as they are, and other objects
are refused.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import timezone
from itertools import islice
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from relay_agent.values.presentation import KINDS, Attributes, ShownText, describe_array, describe_module, find_kind
from relay_agent.values.secrets import HIDDEN, is_secret, secrets_of_environment
from relay_agent.values.static_path import (
    attributes_of,
    class_entry,
    entry,
    instance_table,
    is_of_its_module,
    module_table,
    module_tables,
    package_of,
    read_path,
    type_name,
    unchanged,
)
from relay_core.agent_api.stacks import is_library

MAX_PARTS = 100_000
"""Maximum number of parts of a value that is copied completely."""
TOO_MANY = "the value has too many parts; choose one of them"
MAX_DEPTH = 20
MAX_SHOWN, SHOWN_DEPTH = 10_000, 4
"""The same for a value that is shown; its text does not reach deeper."""
MODULE_TABLES = 3
"""Number of tables of a `torch.nn.Module`."""
MAX_NAMES = 30
"""Maximum number of attributes that are named in place of an object."""
MAX_TEXT = 2000
"""Maximum number of characters of a text that is shown; twice as many are searched for secrets, which may cross it."""
PAIR = 2
"""Length of a sequence whose first text may be the name of the second one."""
_SCALARS = frozenset(map(id, (bool, int, float, complex, type(None), type(...), range)))
"""The ids of classes, because to compare a class is to call its metaclass."""
_ARRAYS = frozenset({("torch", "Tensor"), ("torch", "Parameter"), ("numpy", "ndarray"), ("numpy", "generic")})
_LIBRARIES = frozenset(package for package, _ in KINDS)
_CONSTANTS = frozenset({("torch", "dtype"), ("torch", "device")})
_NUMERIC = frozenset("biufcmM")
"""Kinds of numpy's dtypes whose elements are numbers or times."""
_NUMBERS = ((int, int.__index__), (float, float.__float__))


def read_plain(width: int | None, name: str, value: Any, *steps: tuple[str, Any]) -> Any:
    """Return a copy of the value to which a path leads.

    Args:
        width: Maximum number of elements that are copied from each container. None to copy everything, for a
            comparison, which has no attributes and hides no secrets.
        name: The variable with which the path begins.
        value: The variable's value.
        steps: As for `read_path`.

    Raises:
        LookupError: there is no such attribute or element, or the value is too large for a comparison.
        TypeError: reading or copying it would execute code.
    """
    names = [name, *(key for _, key in steps if type(key) is str)]
    return Copy(width, secrets_of_environment()).of(read_path(value, *steps), 0, ".".join(names))


class Copy:
    """Makes copies, whose limits apply to all of them together.

    Args:
        width: As in `read_plain`.
        secrets: Texts that are secrets, too.
        max_parts: Maximum number of parts that are copied of a value that is shown, whose arrays are then described;
            None for `MAX_SHOWN` and arrays as they are.
    """

    def __init__(self, width: int | None, secrets: Collection[str] = (), *, max_parts: int | None = None) -> None:
        self._width = width
        self._secrets = secrets
        self._with_arrays = max_parts is None
        self._limits = (MAX_PARTS, MAX_DEPTH) if width is None else (max_parts or MAX_SHOWN, SHOWN_DEPTH)
        self._parts = 0

    def of(self, value: Any, depth: int, name: str = "") -> Any:
        """Return a copy of a value.

        Args:
            value: The value.
            depth: In how many other values it is.
            name: The variables, attributes and keys that it is in.
        """
        self._parts += 1
        kind = type(value)
        if id(kind) in _SCALARS:
            return value
        if self._width is not None and issubclass(kind, enum.Enum):
            return ShownText(f"{type_name(kind)}.{_text_in(instance_table(value), '_name_')}")
        if issubclass(kind, (str, bytes)):
            return self._of_text(value, name)
        for base, convert in _NUMBERS:
            if issubclass(kind, base):
                return convert(value)
        if _is_array(value) and (self._width is None or _is_numeric(value)):
            described = None if self._with_arrays else find_kind(kind)
            return ShownText(KINDS[described](value)) if described else value
        return self._of_container(value, kind, depth + 1, name)

    def _of_text(self, value: Any, name: str) -> Any:
        """Return a text or bytes, or what is shown instead."""
        kind = str if issubclass(type(value), str) else bytes
        longest = max(2 * MAX_TEXT, MAX_TEXT + max(map(len, self._secrets), default=0))
        copied: Any = kind.__getitem__(value, slice(None, None if self._width is None else longest))
        if self._width is None:
            return copied
        is_hidden = copied and self._is_secret(_label(copied), name)
        return ShownText(HIDDEN) if is_hidden else copied[:MAX_TEXT]

    def _is_secret(self, text: str, name: str = "") -> bool:
        return is_secret(name, text, is_in_program=True) or any(secret in text for secret in self._secrets)

    def _of_container(self, value: Any, kind: type, depth: int, name: str) -> Any:
        if self._parts > self._limits[0] or depth > self._limits[1] + 1:
            if self._width is None:
                raise LookupError(TOO_MANY)
            return ShownText("...")
        if issubclass(kind, dict):
            return self._of_dict(value, depth, name)
        fields = class_entry(kind, "_fields") if self._width is not None and issubclass(kind, tuple) else None
        if type(fields) is tuple and all(type(each) is str for each in fields):  # a named tuple
            return self._of_attributes(kind, zip(fields, tuple.__iter__(value), strict=False), depth, name)
        for base in (list, tuple, set, frozenset, deque):
            if issubclass(kind, base):
                return base(self._of_parts(self._first(base.__iter__, value), depth, name))
        tables = module_tables(value)
        if len(tables) == MODULE_TABLES and (self._width is None or depth == 1):
            return {key: part for table in tables for key, part in self._of_dict(table, depth, name).items()}
        if self._width is None:
            names = ", ".join([each for each, _ in islice(attributes_of(value), MAX_NAMES)])
            hint = f"; compare one of its attributes: {names}" if names else ""
            raise TypeError(f"comparing an object of class {type_name(kind)} would execute code{hint}")
        return self._of_object(value, kind, depth, name)

    def _of_dict(self, value: dict[Any, Any], depth: int, name: str) -> dict[Any, Any]:
        found = {}
        for key, part in self._first(dict.items, value):
            copied = self.of(key, depth, name)
            found[copied] = self.of(part, depth, f"{name}.{_label(copied)}")
        return found

    def _of_parts(self, parts: list[Any], depth: int, name: str) -> Iterator[Any]:
        """Yield copies of the parts of a sequence; a text can name the next one, as in a command line."""
        before = ""
        for part in parts:
            copied = self.of(part, depth, f"{name}.{before}")
            yield copied
            text = _label(copied)
            before = text if text.startswith("-") or len(parts) == PAIR else ""
            name += ".secret" if type(part) is str and "PRIVATE KEY" in part else ""

    def _first(self, iterate: Any, value: Any) -> list[Any]:
        """Return the elements that are copied; the job may add and remove some of them meanwhile."""
        most = MAX_PARTS + 1 if self._width is None else self._width
        found = unchanged(lambda: list(islice(iterate(value), most)), "value")
        if len(found) > MAX_PARTS and self._width is None:
            raise LookupError(TOO_MANY)
        return found

    def _of_object(self, value: Any, kind: type, depth: int, name: str) -> Any:
        """Return what shows an object by its class and its attributes, or as its library does."""
        if text := _own_text(value, kind):
            return ShownText(
                HIDDEN if self._is_secret(text, name if package_of(kind) in {"pathlib", "uuid"} else "") else text
            )
        arguments = vars(BaseException)["args"].__get__(value) if issubclass(kind, BaseException) else ()
        arguments = (value.start, value.stop, value.step) if kind is slice else arguments
        first = [("", each) for each in islice(arguments, MAX_NAMES)]
        return self._of_attributes(kind, [*first, *attributes_of(value)], depth, name)

    def _of_attributes(self, kind: type, entries: Iterable[tuple[str, Any]], depth: int, name: str) -> Attributes:
        known = sorted(entries, key=lambda each: each[0].startswith("_"))
        parts = [(key, self.of(value, depth, f"{name}.{key}")) for key, value in known[: self._width]]
        first = [(HIDDEN if self._is_secret(key) else key, part) for key, part in parts]
        more = [("", ShownText("..."))] if len(known) > len(first) else []
        return Attributes(HIDDEN if self._is_secret(type_name(kind)) else type_name(kind), [*first, *more])


def _is_array(value: Any) -> bool:
    """Return whether a value is shown by its library alone: a tensor or array of numbers."""
    package = package_of(type(value))
    if package not in {"torch", "numpy"} or not is_of_its_module(type(value)):
        return False
    names = {(package, type_name(base)) for base in type.__dict__["__mro__"].__get__(type(value))}
    return bool(names & _CONSTANTS) or (bool(names & _ARRAYS) and not getattr(value.dtype, "hasobject", False))


def _is_numeric(value: Any) -> bool:
    """Return whether an array or constant has no texts as elements."""
    return getattr(getattr(value, "dtype", None), "kind", "f") in _NUMERIC


def _own_text(value: Any, kind: type) -> str:
    """Return the text of what is not shown by its attributes; "" for other objects."""
    text = ""
    if issubclass(kind, type):
        text = f"<class {type_name(value)}>"
    elif id(kind) in _BUILT_IN:
        text = _BUILT_IN[id(kind)](value)
    elif len(module_tables(value)) == MODULE_TABLES:
        is_training = entry(instance_table(value), "training") is True
        text = describe_module(type_name(kind), _parameters_of(value), is_training=is_training)
    elif (show := _OF_LIBRARY.get(package_of(kind), {}).get(type_name(kind))) and is_of_its_module(kind):
        text = show(value)
    elif package_of(kind) in _LIBRARIES and is_of_its_module(kind) and (found := find_kind(kind)):
        text = KINDS[found](value)
    elif _is_library_array(kind):
        text = describe_array(value)
    return text


def _method(value: Any) -> str:
    owner, function = value.__self__, value.__func__
    name = function.__code__.co_name if type(function) is FunctionType else "?"
    return f"<method {type_name(owner if issubclass(type(owner), type) else type(owner))}.{str.__str__(name)}>"


def _moment(value: Any) -> str:
    """Return a date with a time, or a time; a time zone that is not a fixed offset is code, and only named."""
    zone = type(value.tzinfo)
    if zone is timezone or zone is type(None):
        return f"<{type_name(type(value))} {value.isoformat()}>"
    return f"<{type_name(type(value))} {value.replace(tzinfo=None).isoformat()} {type_name(zone)}>"


_BUILT_IN: dict[int, Callable[[Any], str]] = {
    id(FunctionType): lambda value: f"<function {str.__str__(value.__code__.co_name)}>",
    id(BuiltinFunctionType): lambda value: f"<function {value.__name__}>",
    id(MethodType): _method,
    id(ModuleType): lambda value: f"<module {_text_in(instance_table(value), '__name__')}>",
}
"""What shows values of exactly these classes, by their ids, without other code."""
_OF_LIBRARY: dict[str, dict[str, Callable[[Any], str]]] = {
    "datetime": {"date": repr, "timedelta": repr, "datetime": _moment, "time": _moment},
    "decimal": {"Decimal": repr},
    "pathlib": {"PosixPath": repr, "PurePosixPath": repr},
    "uuid": {"UUID": repr},
}
"""The same for classes of the standard library, by package and name."""


def _is_library_array(kind: type) -> bool:
    """Return whether a class is an array of a library that is not in `KINDS`."""
    has_both = all(class_entry(kind, name) is not None for name in ("shape", "dtype"))
    return has_both and is_library(_text_in(module_table(kind), "__file__")) and is_of_its_module(kind)


def _label(copied: Any) -> str:
    """Return the text of a copied key or part; "" if it has none."""
    if type(copied) is tuple:
        return " ".join(map(_label, copied))
    if type(copied) is bytes:
        return copied.decode(errors="replace")
    return copied if type(copied) is str else repr(copied) if type(copied) is ShownText else ""


def _text_in(table: dict[Any, Any], key: str) -> str:
    found = entry(table, key)
    return found if type(found) is str else "?"


def _parameters_of(module: Any) -> Iterator[Any]:
    """Yield the parameters of a `torch.nn.Module` and of those in it, each once."""
    pending, seen = [module], {id(module)}
    while pending:
        tables = module_tables(pending.pop())
        if len(tables) == MODULE_TABLES:
            parameters, _, modules = (list(dict.values(table)) for table in tables)
            new = {id(each): each for each in (*parameters, *modules) if id(each) not in seen}
            seen.update(new)
            yield from (each for each in new.values() if package_of(type(each)) == "torch" and _is_array(each))
            pending += new.values()
