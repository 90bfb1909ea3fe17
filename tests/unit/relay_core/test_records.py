"""Facts about records: what an annotation means on the wire, and that invalid values count as missing."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.records import Link, NonEmpty, Path, Port, Wire, encode, parse, parse_or_none

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Pair(NamedTuple):
    first: int
    second: int = 0


@dataclass(frozen=True)
class Point:
    is_array = True
    port: Port
    share: Annotated[float, Wire(digits=2)] = 0.0
    pair: Pair | None = None


@dataclass(frozen=True)
class Owner:
    name: Annotated[str, Wire(is_required=True)]
    age: int | None = None


@dataclass(frozen=True)
class All:
    text: str = ""
    number: int | None = None
    small: Annotated[int, Wire(most=255)] = 0
    share: float = 0.5
    flag: bool = False
    color: Color = Color.RED
    path: Path = ""
    link: Link = ""
    points: Annotated[tuple[Point, ...], Wire(most=2)] = ()
    counts: Annotated[Mapping[str, int], Wire(most=2)] = field(default_factory=dict)
    owner: Owner | None = None
    version: Annotated[int, Wire(missing=0)] = 7
    secret: Annotated[str, Wire(is_local=True)] = ""


FULL = All(
    *("a", 1, 2, 0.25, True, Color.BLUE, "/a", "https://a.b/c"),
    points=(Point(5678, 0.13, Pair(1)), Point(5679)),
    counts={"x": 1},
    owner=Owner("bob", 3),
    version=8,
)
WRITTEN = {
    "text": "a",
    "number": 1,
    "small": 2,
    "share": 0.25,
    "flag": True,
    "color": "blue",
    "path": "/a",
    "link": "https://a.b/c",
    "points": [[5678, 0.13, {"first": 1}], [5679]],
    "counts": {"x": 1},
    "owner": {"name": "bob", "age": 3},
    "version": 8,
}


def test_every_kind_of_field() -> None:
    """Each has its form, and is read back."""
    assert WRITTEN == encode(FULL)
    assert FULL == parse(All, WRITTEN)


def test_default_is_omitted() -> None:
    """Unless a missing field is read as something else."""
    assert {"version": 7} == encode(All(secret="s"))
    assert All(version=0) == parse(All, {}) == parse(All, None)


@pytest.mark.parametrize(
    "value",
    [
        {"text": 1},
        {"number": -1},
        {"number": True},
        {"number": 2**63},
        {"small": 256},
        {"share": "1"},
        {"share": float("inf")},
        {"share": float("nan")},
        {"share": 10**400},
        {"share": True},
        {"flag": 1},
        {"color": "green"},
        {"path": "/a\x1b"},
        {"link": "http://a"},
        {"link": "https://a b"},
        {"link": 'https://a"b'},
        {"link": "https://a\x1b"},
        {"link": "https://" + "a" * 3000},
        {"points": {}},
        {"points": [[0], [65536], ["x"], [], {}]},
        {"counts": {"x": -1}},
        {"owner": 1, "age": 3},
        {"unknown": 1},
    ],
)
def test_invalid_value_counts_as_missing(value: object) -> None:
    """A value of the wrong type, out of range, or that `clean` would change where that matters."""
    assert All(version=0) == parse(All, value, lambda text: text.replace("\x1b", "?"))


def test_texts_are_cleaned() -> None:
    """In each field, and in the names of a mapping."""
    assert All("?", counts={"?": 1}, version=0) == parse(All, {"text": "!", "counts": {"!": 1}}, lambda _text: "?")


def test_number_of_elements_is_limited() -> None:
    """More elements than the limit are neither read nor written."""
    points = [[5678], [5679], [5680]]
    assert (Point(5678), Point(5679)) == parse(All, {"points": points}).points
    assert points[:2] == encode(All(points=tuple(Point(port) for (port,) in points)))["points"]
    assert 2 == len(parse(All, {"counts": {str(number): number for number in range(5)}}).counts)


@pytest.mark.parametrize(
    ("value", "port"), [(1, 1), (65535, 65535), (0, None), (65536, None), (True, None), ("1", None), (1.0, None)]
)
def test_ports(value: object, port: int | None) -> None:
    """A port is an integer from 1 to 65535."""
    found = parse_or_none(Point, [value])
    assert port == (found and found.port)


def test_missing_record() -> None:
    """A record without a required field, or without a value, is missing."""
    assert parse_or_none(Owner, {"age": 3}) is None
    assert parse_or_none(Point, []) is None
    assert parse_or_none(All, "text") is None
    assert Pair(0) == parse(Pair, {})


@given(JSON)
def test_any_json_can_be_read(value: object) -> None:
    """And what was read can be written and read again."""
    found = parse(All, value)
    assert found == parse(All, encode(found))


@given(
    st.builds(All, st.text(), st.none() | st.integers(0, 2**60), st.integers(0, 255), st.floats(0, 1e10), st.booleans())
)
def test_what_was_written_is_read(record: All) -> None:
    """A field that is omitted has the value that a missing field gets."""
    assert record == parse(All, encode(record))


def test_text_that_must_not_be_empty() -> None:
    """A record with an empty one is missing."""

    class Named(NamedTuple):
        name: NonEmpty

    assert (None, None, Named("x")) == tuple(parse_or_none(Named, {"name": name}) for name in ("", 1, "x"))
    assert parse_or_none(Named, {"name": " "}, str.strip) is None
