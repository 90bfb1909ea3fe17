"""Records on the wire: JSON objects that the annotations of a dataclass or a named tuple describe.

An annotation determines how a field is read and written, and `Annotated[..., Wire(...)]` adds what a type cannot
express. Reading is tolerant, because the other side may have another version or be hostile: unknown fields are ignored,
and a value that has the wrong type or is out of range counts as missing. A missing field gets its default, or the empty
value of its type; without a field that `Wire` requires, the whole record is missing. Writing omits the fields that have
the value which a missing field gets.

    str                     text, made safe to display by the reader's `clean`
    int, float              not negative; a float may have a limited number of digits
    bool, Enum              only `true` and `false`; only the values of the enumeration
    X | None                None if it is missing
    tuple[X, ...]           an array, at most `Wire.most` elements; invalid ones are left out
    Mapping[str, X]         an object
    record                  an object, or an array of its fields if the class has `is_array = True`

docs/decisions/0013 compares this with the library msgspec.
"""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

from relay_core.value_parsers import is_port

MAX_COUNT = 2**63 - 1
"""Upper bound for integers such as process ids and thread ids."""
MAX_LINK = 2048
"""Maximum number of characters in an address."""
MAX_SECONDS = 32_503_680_000.0
"""Upper bound for times and other numbers: the end of the year 2999. `time.localtime` of Windows, which calls
`_localtime64_s`, fails after the year 3000. It also excludes infinity, which Python's JSON decoder accepts."""

T = TypeVar("T")
Clean = Callable[[str], str]
"""Makes a text from another machine safe to display."""
_Read = Callable[[Any, Clean], Any]
"""Returns the value of a field, or `MISSING` if it is invalid."""
_Write = Callable[[Any], object]
"""Returns the JSON of a value."""


MISSING: Any = object()
"""The result of a reader for an invalid value."""


class Wire(NamedTuple):
    """How a field is read and written, as far as its type does not determine it."""

    read: _Read | None = None
    write: _Write | None = None
    most: int | None = None
    """Maximum number of elements, or the maximum of an integer."""
    digits: int | None = None
    """Number of digits after the decimal point."""
    missing: Any = MISSING
    """The value of a missing field, if it is not the field's default."""
    is_required: bool = False
    """Whether a record without this field is invalid."""
    is_local: bool = False
    """Whether the field is never sent."""


class _Field(NamedTuple):
    name: str
    kind: Any
    """The type of the field's value, without None and annotations."""
    read: _Read
    write: _Write
    missing: object
    """The value of a missing field."""
    has_default: bool
    wire: Wire


def as_is(value: T) -> T:
    """Return a value unchanged; as a `Clean`, for texts from this machine."""
    return value


def encode(record: object) -> dict[str, object]:
    """Return the JSON object of a record, which is a dataclass or a named tuple."""
    found: dict[str, object] = {}
    for field in fields_of(type(record)):
        value = getattr(record, field.name)
        if field.wire.is_required or value != field.missing:
            found[field.name] = None if value is None else field.write(value)
    return found


def parse(kind: type[T], value: object, clean: Clean = as_is) -> T:
    """Return the record in a JSON object; if it is missing or invalid, the record without any field."""
    found = parse_or_none(kind, value, clean)
    return cast("T", _build(kind, {}, clean)) if found is None else found


def parse_or_none(kind: type[T], value: object, clean: Clean = as_is) -> T | None:
    """Return the record in a JSON object (or array); None if it is missing or a required field is."""
    if isinstance(value, list) and getattr(kind, "is_array", False):
        value = dict(zip((field.name for field in fields_of(kind)), value, strict=False)) if value else None
    return cast("T | None", _build(kind, value, clean)) if isinstance(value, Mapping) else None


def _build(kind: Any, value: Mapping[str, Any], clean: Clean) -> object:
    found = {}
    for field in fields_of(kind):
        given = value.get(field.name)
        read = MISSING if given is None else field.read(given, clean)
        if read is MISSING:
            if field.wire.is_required:
                return None
            read = field.missing
        found[field.name] = read
    return kind(**found)


def fields_of(kind: Any) -> tuple[_Field, ...]:
    """Return how each field of a record is read and written."""
    return _described(kind)  # mypy takes no class for hashable, which a cached function requires


@functools.cache
def _described(kind: Any) -> tuple[_Field, ...]:
    hints = get_type_hints(kind, include_extras=True)
    if hasattr(kind, "_field_defaults"):
        names, defaults = kind._fields, kind._field_defaults
    else:
        import dataclasses  # noqa: PLC0415 - whoever has a dataclass has imported it; jobs have named tuples

        fields = dataclasses.fields(kind)
        names = [field.name for field in fields]
        defaults = {field.name: field.default for field in fields if field.default is not dataclasses.MISSING} | {
            field.name: field.default_factory() for field in fields if field.default_factory is not dataclasses.MISSING
        }
    sent = (name for name in names if not _wire_of(hints[name]).is_local)
    return tuple(_field(name, hints[name], defaults.get(name, MISSING)) for name in sent)


def _wire_of(form: Any) -> Wire:
    return next((extra for extra in getattr(form, "__metadata__", ()) if isinstance(extra, Wire)), Wire())


def _field(name: str, form: Any, default: object) -> _Field:
    wire, kind = _wire_of(form), _bare(form)
    missing = wire.missing if wire.missing is not MISSING else _empty(kind) if default is MISSING else default
    return _Field(name, kind, *_codec(form), missing, default is not MISSING, wire)


def _bare(form: Any) -> Any:
    """Return a type without `Annotated` and without `| None`."""
    if get_origin(form) is Annotated:
        form = form.__origin__
    if hasattr(form, "__supertype__"):  # a NewType
        form = form.__supertype__
    if isinstance(form, types.UnionType):
        form = _bare(next(each for each in get_args(form) if each is not types.NoneType))
    return form


def _empty(kind: Any) -> object:
    origin = get_origin(kind)
    if origin is tuple:
        return ()
    return {} if origin is not None else kind() if kind in {str, int, float, bool, bytes} else None


def _codec(form: Any) -> tuple[_Read, _Write]:
    """Return the functions that read and write a value of a type."""
    wire, kind = _wire_of(form), _bare(form)
    pair = _codec_of_container(kind, wire) if get_origin(kind) is not None else _codec_of_value(kind, wire)
    return wire.read or pair[0], wire.write or pair[1]


def _codec_of_container(kind: Any, wire: Wire) -> tuple[_Read, _Write]:
    if get_origin(kind) is not tuple:  # a mapping
        return functools.partial(_read_mapping, _codec(get_args(kind)[1])[0], wire.most), dict
    read, write = _codec(get_args(kind)[0])
    return functools.partial(_read_array, read, wire.most), lambda value: [write(each) for each in value[: wire.most]]


def _codec_of_value(kind: Any, wire: Wire) -> tuple[_Read, _Write]:
    if kind is int:
        return functools.partial(_read_count, MAX_COUNT if wire.most is None else wire.most), as_is
    if kind is float:
        return _read_number, as_is if wire.digits is None else functools.partial(round, ndigits=wire.digits)
    if kind in {str, bool}:
        return _read_text if kind is str else _read_flag, as_is
    if issubclass(kind, enum.Enum):
        return functools.partial(_read_enum, kind), lambda value: value.value
    return functools.partial(_read_record, kind), _write_array if getattr(kind, "is_array", False) else encode


def _read_record(kind: type, value: object, clean: Clean) -> object:
    found: object = parse_or_none(kind, value, clean)
    return MISSING if found is None else found


def _write_array(value: object) -> object:
    """Return the fields of a record in their order, without those at the end that have their default."""
    fields = list(fields_of(type(value)))
    while fields[-1].has_default and getattr(value, fields[-1].name) == fields[-1].missing:
        fields.pop()
    values = ((field, getattr(value, field.name)) for field in fields)
    return [None if each is None else field.write(each) for field, each in values]


def _read_array(read: _Read, most: int | None, value: object, clean: Clean) -> object:
    if not isinstance(value, list):
        return MISSING
    found = (read(each, clean) for each in value[:most])
    return tuple(each for each in found if each is not MISSING)


def _read_mapping(read: _Read, most: int | None, value: object, clean: Clean) -> object:
    if not isinstance(value, Mapping):
        return MISSING
    found = ((clean(str(name)), read(each, clean)) for name, each in list(value.items())[:most])
    return {name: each for name, each in found if each is not MISSING}


def _read_text(value: object, clean: Clean) -> object:
    return clean(value) if isinstance(value, str) else MISSING


def is_count(value: object, most: int = MAX_COUNT) -> bool:
    """Return whether a value is an integer from 0 to `most`."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _read_count(most: int, value: object, _clean: Clean) -> object:
    return value if is_count(value, most) else MISSING


def _read_number(value: object, _clean: Clean) -> object:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return MISSING
    return float(value) if 0 <= value <= MAX_SECONDS else MISSING


def _read_flag(value: object, _clean: Clean) -> object:
    return value if isinstance(value, bool) else MISSING


def _read_enum(kind: type[enum.Enum], value: object, _clean: Clean) -> object:
    try:
        return kind(value if isinstance(value, str) else "")
    except ValueError:
        return MISSING


def read_port(value: object, _clean: Clean) -> object:
    """Return a port from 1 to 65535, or `MISSING`."""
    return value if isinstance(value, int) and is_count(value) and is_port(value) else MISSING


def read_path(value: object, clean: Clean) -> object:
    """Return a path, or `MISSING` if `clean` would change it: a changed path would name a different file."""
    return value if isinstance(value, str) and clean(value) == value else MISSING


def read_link(value: object, clean: Clean) -> object:
    """Return an address that starts with https:// and has no blanks, or `MISSING`."""
    if not isinstance(value, str) or len(value) > MAX_LINK or not value.startswith("https://"):
        return MISSING
    return value if clean(value) == value and not set(value) & set(" \t<>\"'") else MISSING


def read_non_empty(value: object, clean: Clean) -> object:
    """Return a text in which `clean` leaves at least one character, or `MISSING`."""
    return (clean(value) or MISSING) if isinstance(value, str) else MISSING


Port = Annotated[int, Wire(read=read_port, is_required=True)]
"""A port from 1 to 65535, without which the record is invalid."""
Path = Annotated[str, Wire(read=read_path)]
Link = Annotated[str, Wire(read=read_link)]
NonEmpty = Annotated[str, Wire(read=read_non_empty, is_required=True)]
"""A text without which the record is invalid."""
