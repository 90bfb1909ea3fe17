"""Facts about readers of JSON."""

import pytest

from relay_core import json_values
from relay_core.errors import ProtocolError


def test_missing_values_are_empty() -> None:
    """A value of another type reads as an empty text, object or array."""
    assert ("", {}, []) == (json_values.text(3), json_values.mapping([]), json_values.items({}))


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[1]", b"null", b"[" * 100_000])
def test_an_object_is_required(data: bytes) -> None:
    """The error names what should be an object."""
    with pytest.raises(ProtocolError, match="^the answer is not a JSON object$"):
        json_values.json_object(data, "the answer")
    assert {"a": 1} == json_values.json_object(b'{"a": 1}', "the answer")
