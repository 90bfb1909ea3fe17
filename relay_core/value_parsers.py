"""Parsers of values in options, variables, files and messages: ports, flags, durations, lists, enumerations."""

from __future__ import annotations

import contextlib
import enum
import re
from collections.abc import Iterable, Iterator

from relay_core.errors import UsageError

# Parsers of values in options, variables and files: ports, flags and durations.
#
#     port       5678                       1 to 65535
#     flag       true yes on 1              false no off 0 none, and an empty text
#     duration   90  90s  10m  1.5h         seconds unless a unit follows
#
# Each parser raises a UsageError that does not name the source of the text; `named` adds the name. Jobs import this
# module, so it must import as little as `relay_core.errors`.

MAX_PORT = 65535

_MAX_PORT_DIGITS = 5
_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off", "none", ""})
"""A pipeline passes an input without a value as "none" or as an empty text."""
_RESEMBLANCE = 0.75
"""Minimum similarity of two words, as difflib measures it: that of two four-letter words that differ by two swapped
letters."""
_UNITS = {"s": 1, "m": 60, "h": 3600}


class TolerantEnum(enum.Enum):
    """An enumeration in which an unknown value, such as one that a later version introduced, is the first member."""

    @classmethod
    def _missing_(cls, _value: object) -> enum.Enum:
        return next(iter(cls))


@contextlib.contextmanager
def named(name: str) -> Iterator[None]:
    """Prefix an error with the option, variable or field that the invalid text came from."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{name}: {error.sentence}", hint=error.hint) from None


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that a misspelt word resembles most, or None if it resembles none of them closely."""
    from difflib import get_close_matches  # noqa: PLC0415 - for misspelt words only

    return next(iter(get_close_matches(word, list(known), 1, _RESEMBLANCE)), None)


def is_port(number: int) -> bool:
    """Return whether a number is a valid TCP port."""
    return 1 <= number <= MAX_PORT


def is_port_text(text: str) -> bool:
    """Return whether a text is a valid port number."""
    # Python's int() also accepts "+5", "5_678" and digits of other scripts, which no other program accepts as a port.
    return text.isascii() and text.isdecimal() and len(text) <= _MAX_PORT_DIGITS and is_port(int(text))


def parse_port(text: str) -> int:
    """Return a port.

    Raises:
        UsageError: the text is not a number from 1 to 65535.
    """
    if is_port_text(digits := text.strip()):
        return int(digits)
    raise UsageError(f"invalid port: '{text}'", hint=f"use a number from 1 to {MAX_PORT}, such as 5678")


def read_flag(text: str) -> bool | None:
    """Return the value of a flag; None if the text is not a flag."""
    word = text.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else None


def parse_flag(text: str) -> bool:
    """Return the value of a flag; "False" and "" are false.

    Raises:
        UsageError: the text is not a flag.
    """
    value = read_flag(text)
    if value is None:
        raise UsageError(f"invalid flag: '{text}'", hint="use true or false")
    return value


def parse_duration(text: str) -> float:
    """Return a duration in seconds.

    Raises:
        UsageError: the text is not a finite duration of at least 0.
    """
    digits = text.strip()
    factor = _UNITS.get(digits[-1:], 0)
    try:
        seconds = float(digits[:-1] if factor else digits) * (factor or 1)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):  # written this way because any comparison with NaN is false
        raise UsageError(f"invalid duration: '{text}'", hint="use seconds or a unit, such as 90, 90s, 10m or 2h")
    return seconds


# The grammar of lists of ranks or ports: single numbers ("3") and ranges ("3-5"), joined by commas.
#
# good:  5678    5678-5680    0,3-5    " 3 - 4 , 7 "
# bad:   5-3 (start above end)    -1, 1.5, 1e3, +1, "" (not numbers)    "0," (an empty part)

_PART = re.compile(r"\s*([0-9]{1,9})\s*(?:-\s*([0-9]{1,9})\s*)?", re.ASCII)
"""At most nine digits, because converting thousands of digits would take noticeable time."""

MAX_REVERSED = 64
"""Length of the longest range in reverse order that a hint turns round; a longer one is more likely a missing digit."""


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
            hint = f"use {last}-{first}" if first - last < MAX_REVERSED else f"use a second number of at least {first}"
            raise UsageError(f"invalid {what}: '{part.strip()}' is in reverse order", hint=hint)
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
