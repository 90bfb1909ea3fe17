"""Conversion between JSON and frozen dataclasses: the only place where control socket messages are validated.

Fields that are None are omitted. Unknown fields are ignored, so that a newer program can add fields. A missing field
gets its default. Field types are str, int, float, bool, `object` (any JSON), dataclasses, `X | None` and `tuple[X,
...]`.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from relay_core.errors import ProtocolError

__all__ = ["decode", "encode"]

T = TypeVar("T")


def encode(value: object) -> Any:
    """Return the JSON value of a dataclass or of one of its field values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: encode(found) for name, found in fields.items() if found is not None}
    if isinstance(value, tuple):
        return [encode(element) for element in value]
    return value


def decode(kind: type[T], value: object) -> T:
    """Return the dataclass for a JSON object.

    Raises:
        ProtocolError: the value is not an object, a required field is missing, or a field has the wrong type.
    """
    if not isinstance(value, Mapping):
        raise ProtocolError(f"invalid {kind.__name__}: not a JSON object")
    found = {}
    for name, (form, is_required) in _fields(typing.cast("typing.Hashable", kind)).items():
        if value.get(name) is not None:
            found[name] = _decoded(form, value[name], f"{kind.__name__}.{name}")
        elif is_required:
            raise ProtocolError(f"invalid {kind.__name__}: '{name}' is missing")
    return kind(**found)


@functools.cache
def _fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Return the type of each field, and True if the field is required."""
    hints = typing.get_type_hints(kind)
    missing = dataclasses.MISSING
    return {
        field.name: (hints[field.name], field.default is missing and field.default_factory is missing)
        for field in dataclasses.fields(kind)
    }


def _decoded(form: Any, value: object, where: str) -> Any:
    if form is object:
        return value
    if isinstance(form, types.UnionType):  # `X | None`; None was handled as a missing field
        form = next(each for each in typing.get_args(form) if each is not type(None))
    if typing.get_origin(form) is tuple and isinstance(value, list):
        element = typing.get_args(form)[0]
        return tuple(_decoded(element, each, where) for each in value)
    if dataclasses.is_dataclass(form):
        return decode(typing.cast("type[Any]", form), value)
    if form is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is form:
        return value
    raise ProtocolError(f"invalid {where}: unexpected type {type(value).__name__}")
