"""The small values that users write in options, variables and files: a port, yes or no, a duration.

    port       5678                       1 to 65535
    flag       true yes on 1              false no off 0 none, and nothing at all
    duration   90  90s  10m  1.5h         seconds unless a unit follows

Each reader raises a UsageError that does not say where the text came from; `named` puts that in front.
Jobs import this module: it must stay as light as `relay_core.errors`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from relay_core.errors import UsageError

__all__ = [
    "MAX_PORT",
    "escape_controls",
    "is_port",
    "is_port_text",
    "named",
    "parse_duration",
    "parse_flag",
    "parse_port",
    "read_flag",
]

MAX_PORT = 65535

_MAX_PORT_DIGITS = 5
_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off", "none", ""})
"""A pipeline passes an input that has no value as "none" or as nothing."""
_UNITS = {"s": 1, "m": 60, "h": 3600}


@contextlib.contextmanager
def named(name: str) -> Iterator[None]:
    """Put the option, variable or field that a text came from in front of the error about it."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{name}: {error.sentence}", hint=error.hint) from None


def escape_controls(text: str) -> str:
    """Return a text on one line: line breaks and other characters that are not printable become escape sequences."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def is_port(number: int) -> bool:
    """Return whether TCP has a port of this number."""
    return 1 <= number <= MAX_PORT


def is_port_text(text: str) -> bool:
    """Return whether a text is the number of a port."""
    # Python's int() also reads "+5", "5_678" and the digits of other scripts; no other program takes those for a port.
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
    """Return what a yes-or-no text means; None if it is neither."""
    word = text.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else None


def parse_flag(text: str) -> bool:
    """Return what a yes-or-no text means; "False" and "" are false.

    Raises:
        UsageError: it is neither yes nor no.
    """
    value = read_flag(text)
    if value is None:
        raise UsageError(f"neither true nor false: '{text}'", hint="use true or false")
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
    if not 0 <= seconds < float("inf"):  # a NaN compares false, too
        raise UsageError(f"invalid duration: '{text}'", hint="use seconds or a unit, such as 90, 90s, 10m or 2h")
    return seconds
