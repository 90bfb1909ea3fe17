"""Facts about readers of single JSON values."""

from relay_core import json_values


def test_missing_values_are_empty() -> None:
    """A value of another type reads as an empty text, object or array."""
    assert ("", {}, []) == (json_values.text(3), json_values.mapping([]), json_values.items({}))
