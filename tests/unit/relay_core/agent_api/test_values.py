"""Facts about readers of single JSON values."""

import math

import pytest

from relay_core.agent_api import values


@pytest.mark.parametrize(
    ("value", "port"), [(1, 1), (65535, 65535), (0, None), (65536, None), (True, None), ("1", None), (1.0, None)]
)
def test_ports(value: object, port: int | None) -> None:
    """A port is an integer from 1 to 65535."""
    assert port == values.port(value)


@pytest.mark.parametrize("value", [math.inf, math.nan, -1.0, 10**400, True, "1", None])
def test_what_is_not_a_time(value: object) -> None:
    """Seconds are finite and not negative."""
    assert values.seconds(value) is None


def test_links() -> None:
    """A link starts with https:// and has no character that would end it or change the display."""
    page = "https://ml.azure.com/runs/r1?wsid=/subscriptions/s"
    assert page == values.link(page)
    for bad in ("http://ml.azure.com", "https://a b", 'https://a"b', "https://" + "a" * 3000, "javascript:x", 3, None):
        assert "" == values.link(bad)
    assert "" == values.link(page, clean=str.upper)


def test_missing_values_are_empty() -> None:
    """A value of another type reads as an empty text, object or array."""
    assert ("", {}, []) == (values.text(3), values.mapping([]), values.items({}))


def test_elements_that_are_not_objects_are_skipped() -> None:
    """Of an array of objects only these are read; another value has none."""
    assert ([{"a": 1}, {}], []) == (values.objects([{"a": 1}, 2, None, [], {}]), values.objects({}))


def test_missing_fields_are_not_written() -> None:
    """None stands for a missing value; empty and false values are written."""
    assert {"a": 0, "b": "", "c": False} == values.without_missing({"a": 0, "b": "", "c": False, "d": None})
