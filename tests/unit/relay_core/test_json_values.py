"""Facts about readers of single JSON values."""

import pytest

from relay_core import json_values


@pytest.mark.parametrize(
    ("value", "port"), [(1, 1), (65535, 65535), (0, None), (65536, None), (True, None), ("1", None), (1.0, None)]
)
def test_ports(value: object, port: int | None) -> None:
    """A port is an integer from 1 to 65535."""
    assert port == json_values.port(value)


def test_missing_values_are_empty() -> None:
    """A value of another type reads as an empty text, object or array."""
    assert ("", {}, []) == (json_values.text(3), json_values.mapping([]), json_values.items({}))
