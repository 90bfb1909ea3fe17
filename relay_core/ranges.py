"""The grammar of lists of ranks or ports: single numbers ("3") and ranges ("3-5"), joined by commas.

good:  5678    5678-5680    0,3-5    " 3 - 4 , 7 "
bad:   5-3 (start above end)    -1, 1.5, 1e3, +1, "" (not numbers)    "0," (an empty part)
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from relay_core.errors import UsageError

__all__ = ["expand_ranges", "format_ranges", "parse_ranges"]

_PART = re.compile(r"\s*([0-9]{1,9})\s*(?:-\s*([0-9]{1,9})\s*)?", re.ASCII)
"""At most nine digits, because converting thousands of digits would take noticeable time."""


def parse_ranges(text: str, *, what: str, example: str) -> list[range]:
    """Return the ranges of a list, in the order written.

    Args:
        text: Such as "0,3-5".
        what: What the text is, for errors: "list of ports".
        example: A valid text, for hints.

    Raises:
        UsageError: the text does not follow the grammar.
    """
    ranges = []
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise UsageError(f"invalid {what}: '{text[:80]}'", hint=f"use {example}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UsageError(f"invalid {what}: '{part.strip()}' is in reverse order", hint=f"use {last}-{first}")
        ranges.append(range(first, last + 1))
    return ranges


def expand_ranges(ranges: Iterable[range], *, what: str, limit: int) -> list[int]:
    """Return the numbers of ranges in the order written, each once.

    Raises:
        UsageError: a number is listed twice, or there are more than `limit`.
    """
    numbers: dict[int, None] = {}
    for part in ranges:
        if len(numbers) + len(part) > limit:  # checked before a range of a billion numbers is expanded
            raise UsageError(f"invalid {what}: more than {limit} numbers", hint="list fewer")
        for number in part:
            if number in numbers:
                raise UsageError(f"invalid {what}: {number} is listed twice", hint="list each number once")
            numbers[number] = None
    return list(numbers)


def format_ranges(numbers: Iterable[int]) -> str:
    """Return numbers as a list of this grammar, with consecutive ascending numbers joined to ranges."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
