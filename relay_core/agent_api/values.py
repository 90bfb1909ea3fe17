"""Readers of JSON values; a value that has the wrong type or is out of range counts as missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from relay_core.value_parsers import is_port

__all__ = [
    "MAX_NAME",
    "Clean",
    "as_is",
    "count",
    "flag",
    "items",
    "link",
    "mapping",
    "objects",
    "path",
    "port",
    "seconds",
    "short_name",
    "text",
    "without_missing",
]

MAX_NAME = 64
"""Maximum length of a user or owner name; these names appear in announcements, refusals and log lines."""
MAX_COUNT = 2**63
"""Upper bound for ranks, process ids and thread ids."""
MAX_LINK = 2048
"""Maximum number of characters in an address."""
MAX_SECONDS = 1e11
"""The year 5138; also excludes infinity, which Python's JSON decoder accepts."""

Clean = Callable[[str], str]
"""Makes a text from another machine safe to display."""


def as_is(value: str) -> str:
    """Return a text unchanged."""
    return value


def text(value: object, clean: Clean = as_is) -> str:
    """Return a text, or "" if it is missing."""
    return clean(value) if isinstance(value, str) else ""


def path(value: object, clean: Clean = as_is) -> str:
    """Return a path, or "" if it is missing or `clean` would change it: a changed path would name a different file."""
    return value if isinstance(value, str) and clean(value) == value else ""


def link(value: object, clean: Clean = as_is) -> str:
    """Return an address that starts with https://, or "" if it is missing, has blanks or `clean` would change it."""
    found = path(value, clean)
    return found if found.startswith("https://") and len(found) <= MAX_LINK and not set(found) & set(" \t<>\"'") else ""


def short_name(name: str) -> str:
    """Return the printable characters of a name, at most `MAX_NAME` of them."""
    return "".join(char for char in name[: 4 * MAX_NAME] if char.isprintable())[:MAX_NAME]


def count(value: object) -> int | None:
    """Return an integer that is not negative, or None."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < MAX_COUNT else None


def flag(value: object) -> bool | None:
    """Return a boolean, or None."""
    return value if isinstance(value, bool) else None


def port(value: object) -> int | None:
    """Return a port from 1 to 65535, or None."""
    number = count(value)
    return number if number is not None and is_port(number) else None


def seconds(value: object) -> float | None:
    """Return a time in seconds, or None."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value <= MAX_SECONDS else None


def mapping(value: object) -> Mapping[str, object]:
    """Return a JSON object, empty if it is missing."""
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> list[object]:
    """Return the elements of an array, or an empty list if the array is missing."""
    return value if isinstance(value, list) else []


def objects(value: object) -> list[Mapping[str, object]]:
    """Return the objects in an array, or an empty list if the array is missing."""
    return [element for element in items(value) if isinstance(element, Mapping)]


def without_missing(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the fields that have a value, for a JSON object."""
    return {name: value for name, value in fields.items() if value is not None}
