"""Display texts: durations, times, lists of ranks, and texts from other machines made safe for a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterable

from relay_core.value_parsers import format_ranges

__all__ = [
    "CHECK_PORTS",
    "MAX_TEXT",
    "MINUTE",
    "clock",
    "duration",
    "format_ports",
    "format_ranks",
    "in_plural",
    "printable",
]

CHECK_PORTS = "check --ports against the job's --debug-port"
"""The hint for a port that no process has, while others are registered."""
MAX_TEXT = 200
"""Maximum number of characters in a text from another machine, such as an exception message."""
_PLURALS = {"is": "are", "has": "have", "was": "were"}
"""Plural forms of the verbs with which the ends of sentences begin."""
MINUTE, HOUR, DAY = 60, 3600, 86400


def duration(seconds: float) -> str:
    """Return a duration in one or two units.

    >>> duration(40), duration(250), duration(7500), duration(300000)
    ('40 s', '4 min', '2 h 5 min', '3 days')
    """
    whole = max(0, int(seconds))
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} min"
    if whole < DAY:
        minutes = whole % HOUR // MINUTE
        return f"{whole // HOUR} h" + (f" {minutes} min" if minutes else "")
    days = whole // DAY
    return f"{days} day{'s' if days > 1 else ''}"


def clock(unix_seconds: float) -> str:
    """Return the local time of day, as in `12:03`."""
    return time.strftime("%H:%M", time.localtime(unix_seconds))


def format_ranks(ranks: Iterable[int]) -> str:
    """Return a list of ranks as text: `rank 3`, `ranks 0-3,5`."""
    ordered = sorted(ranks)
    return f"rank{'s' if len(ordered) != 1 else ''} {format_ranges(ordered)}"


def format_ports(ports: Iterable[int]) -> str:
    """Return a list of ports as text: `port 5678`, `ports 5678-5681`."""
    ordered = sorted(ports)
    return f"port{'s' if len(ordered) != 1 else ''} {format_ranges(ordered)}"


def in_plural(text: str) -> str:
    """Return the end of a sentence about one rank with a verb that agrees with several ranks.

    >>> in_plural("was killed by SIGTERM"), in_plural("ended with status 1")
    ('were killed by SIGTERM', 'ended with status 1')
    """
    verb, _, rest = text.partition(" ")
    return (
        f"{_PLURALS.get(verb, verb)} {rest.replace(' and is at ', ' and are at ').replace(' itself ', ' themselves ')}"
    )


def printable(value: object, limit: int = MAX_TEXT) -> str:
    """Return a text as one printable line of at most `limit` characters; "" if the value is not a text."""
    if not isinstance(value, str):
        return ""
    cleaned = " ".join("".join(char if char.isprintable() else " " for char in value[: 4 * limit]).split())
    return cleaned if len(cleaned) <= limit else f"{cleaned[: limit - 3]}..."
