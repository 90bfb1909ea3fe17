"""The values of environment variables: text from anybody, as numbers, flags and lists.

Where several variables may hold the same, they are named as "A|B", and the first that is set counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

__all__ = [
    "Environment", "Unusable", "flag", "is_set", "items", "needed", "number", "number_or_none", "parsed_json", "whole",
]  # fmt: skip

Environment = Mapping[str, str]

LONGEST_NUMBER = 9
"""Digits of a rank; a longer text is no rank, and turning thousands of digits into a number costs a job its start."""


class Unusable(Exception):
    """What variables say makes no sense; its text is the reason."""


def is_set(environ: Environment, probe: str) -> bool:
    """Whether a variable has a value; "!A" asks whether it has none, and "A*" for any that begins so."""
    if probe.startswith("!"):
        return not environ.get(probe[1:])
    if probe.endswith("*"):
        return any(name.startswith(probe[:-1]) for name in environ)
    return bool(environ.get(probe))


def whole(text: str, name: str, digits: int = LONGEST_NUMBER) -> int:
    """Return a text of so many digits at most as a number, or raise Unusable about what is called `name`."""
    if not (text.isascii() and text.isdecimal() and len(text) <= digits):
        raise Unusable(f"{name} is not a number")
    return int(text)


def number(environ: Environment, names: str, digits: int = LONGEST_NUMBER) -> int | None:
    """Return the number in the first of the variables "A|B" that is set."""
    name = next((name for name in names.split("|") if environ.get(name)), None)
    return None if name is None else whole(environ[name].strip(), name, digits)


def needed(environ: Environment, names: str, digits: int = LONGEST_NUMBER) -> int:
    """Return the number in the first variable that is set, or raise Unusable if none is."""
    found = number(environ, names, digits)
    if found is None:
        raise Unusable(f"{names.partition('|')[0]} is not set")
    return found


def number_or_none(environ: Environment, names: str) -> int | None:
    """Return a number that the process's place does not hang on; what is no number is left out."""
    try:
        return number(environ, names)
    except Unusable:
        return None


def flag(environ: Environment, names: str) -> bool | None:
    """Return what a text flag says, where "false" is false; None where none is set, or says anything else."""
    said = _text(environ, names).lower()
    return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(said)


def items(environ: Environment, names: str) -> list[str]:
    """Return the items of a list; Azure Batch separates them by ";" or ",", OpenPAI by ","."""
    return [item.strip() for item in re.split("[;,]", _text(environ, names)) if item.strip()]


def _text(environ: Environment, names: str) -> str:
    return next((environ[name] for name in names.split("|") if environ.get(name)), "").strip()


def parsed_json(environ: Environment, name: str) -> object:
    """Return what a variable says in JSON, or raise Unusable."""
    try:
        return json.loads(environ[name])
    except (ValueError, RecursionError):
        raise Unusable(f"{name} is not JSON") from None
