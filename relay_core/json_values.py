"""Readers of JSON that no record describes; a single value that has the wrong type counts as missing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from relay_core.errors import ProtocolError
from relay_core.records import Clean, as_is, is_count


def count(value: object) -> int | None:
    """Return an integer that is not negative, or None."""
    return value if isinstance(value, int) and is_count(value) else None


def text(value: object, clean: Clean = as_is) -> str:
    """Return a text, or "" if it is missing."""
    return clean(value) if isinstance(value, str) else ""


def mapping(value: object) -> Mapping[str, object]:
    """Return a JSON object, empty if it is missing."""
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> list[object]:
    """Return the elements of an array, or an empty list if the array is missing."""
    return value if isinstance(value, list) else []


def json_object(data: bytes, what: str) -> dict[str, Any]:
    """Return the JSON object in the bytes from a peer.

    Raises:
        ProtocolError: they contain none; the sentence begins with `what`.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):  # json recurses: the object may be deeply nested
        found = None
    if not isinstance(found, dict):
        raise ProtocolError(f"{what} is not a JSON object")
    return found
