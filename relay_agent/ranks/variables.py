"""Parsers for environment variables with untrusted text: numbers, flags, lists and JSON.

The parameter `names` may be a list of alternatives, "A|B"; the first variable that is set is used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

__all__ = [
    "Environment", "Unusable", "flag", "is_set", "items", "needed", "number", "number_or_none", "parsed_json", "whole",
]  # fmt: skip

Environment = Mapping[str, str]

MAX_DIGITS = 9
"""Maximum number of digits; converting a text with thousands of digits would delay the start of the job."""


class Unusable(Exception):
    """The values of variables are invalid; the text is the reason."""


def is_set(environ: Environment, probe: str) -> bool:
    """Whether a condition holds: "A": A is set and not empty; "!A": it is not; "A*": some variable has this prefix."""
    if probe.startswith("!"):
        return not environ.get(probe[1:])
    if probe.endswith("*"):
        return any(name.startswith(probe[:-1]) for name in environ)
    return bool(environ.get(probe))


def whole(text: str, name: str, digits: int = MAX_DIGITS) -> int:
    """Return a text of at most `digits` decimal digits as a number.

    Raises:
        Unusable: the text is anything else; the reason contains `name`, the variable or field.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= digits):
        raise Unusable(f"{name} is not a number")
    return int(text)


def number(environ: Environment, names: str, digits: int = MAX_DIGITS) -> int | None:
    """Return the number in the first variable that is set, or None if none is set.

    Raises:
        Unusable: the value is not a number.
    """
    name = next((name for name in names.split("|") if environ.get(name)), None)
    return None if name is None else whole(environ[name].strip(), name, digits)


def needed(environ: Environment, names: str, digits: int = MAX_DIGITS) -> int:
    """Return the number in the first variable that is set.

    Raises:
        Unusable: none is set, or the value is not a number.
    """
    found = number(environ, names, digits)
    if found is None:
        raise Unusable(f"{names.partition('|')[0]} is not set")
    return found


def number_or_none(environ: Environment, names: str) -> int | None:
    """Return the number in the first variable that is set, or None if none is set or the value is not a number."""
    try:
        return number(environ, names)
    except Unusable:
        return None


def flag(environ: Environment, names: str) -> bool | None:
    """Return the Boolean in the first variable that is set (true/1/yes, false/0/no), or None for any other text."""
    text = _text(environ, names).lower()
    return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(text)


def items(environ: Environment, names: str) -> list[str]:
    """Return the items of a list, separated by ";" or "," as in Azure Batch, or by "," as in OpenPAI."""
    return [item.strip() for item in re.split("[;,]", _text(environ, names)) if item.strip()]


def _text(environ: Environment, names: str) -> str:
    return next((environ[name] for name in names.split("|") if environ.get(name)), "").strip()


def parsed_json(environ: Environment, name: str) -> object:
    """Return the JSON value of a variable.

    Raises:
        Unusable: the text is not JSON.
    """
    try:
        return json.loads(environ[name])
    except (ValueError, RecursionError):
        raise Unusable(f"{name} is not JSON") from None
