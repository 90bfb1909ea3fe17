"""Texts: durations, times, lists of ranks and ports (also read); texts of other machines: `relay_core.foreign`."""

from __future__ import annotations

import time
from collections.abc import Iterable

from relay_core.errors import UsageError
from relay_core.value_parsers import MAX_PORT, expand_ranges, format_ranges, is_port, parse_ranges

CHECK_PORTS = "check --ports against the job's --debug-port"
"""The hint for a port that no process has, while others are registered."""
LISTING = "run 'relay-client targets' to list the registered processes"
"""The hint of a request that has found no process."""
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


def exact_duration(seconds: float) -> str:
    """Return a duration that somebody has chosen, in the largest unit in which it has no fraction.

    >>> exact_duration(0.5), exact_duration(90), exact_duration(5400), exact_duration(90000)
    ('0.5 s', '90 s', '90 min', '25 h')
    """
    size, unit = next(((size, unit) for size, unit in ((HOUR, "h"), (MINUTE, "min")) if not seconds % size), (1, "s"))
    return f"{seconds / size:.12g} {unit}"


def clock(unix_seconds: float) -> str:
    """Return the local time of day, as in `12:03`."""
    return time.strftime("%H:%M", time.localtime(unix_seconds))


def since_text(unix_seconds: float | None) -> str:
    """Return the end of a text about what began at a time: ` (since 12:03)`; "" if the time is unknown."""
    return "" if unix_seconds is None else f" (since {clock(unix_seconds)})"


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


# The grammars of `--ports`, such as `5678` or `5678-5680,5690`, and of `--ranks`, such as `3` or `0,3-5`.

MAX_PORTS = 1024
"""Maximum number of ports. No job needs more; the usual limit on open files in a shell is 256 or 1024."""
MAX_RANKS = 1024
"""Maximum number of ranks; one hybrid connection has fewer: at most 25 nodes, usually with 8 ranks each."""

_PORTS, _RANKS = "list of ports", "list of ranks"


def parse_ports(text: str) -> list[int]:
    """Return the ports in the order in which they are written.

    Raises:
        UsageError: the text is not a list of ports, lists a port twice, or lists more than `MAX_PORTS`.
    """
    ranges = parse_ranges(text, what=_PORTS, example="5678, 5678-5680 or 5678,5690")
    if not all(is_port(part[0]) and is_port(part[-1]) for part in ranges):
        raise UsageError(f"invalid {_PORTS}: '{text}' is outside 1-{MAX_PORT}", hint=f"use ports from 1 to {MAX_PORT}")
    return expand_ranges(ranges, what=_PORTS, limit=MAX_PORTS)


def parse_ranks(text: str) -> list[int]:
    """Return the global ranks in the order in which they are written.

    Raises:
        UsageError: the text is not a list of ranks, lists a rank twice, or lists more than `MAX_RANKS`.
    """
    return expand_ranges(parse_ranges(text, what=_RANKS, example="3, 0-7 or 0,3-5"), what=_RANKS, limit=MAX_RANKS)


def parse_chosen_ranks(text: str) -> set[int] | None:
    """Return the ranks of a list, or None for `all`.

    Raises:
        UsageError: the text is neither `all` nor a list of ranks that `parse_ranks` accepts.
    """
    return None if text == "all" else set(parse_ranks(text))


def parse_chosen_ports(text: str) -> list[int] | None:
    """Return the ports of a list, or None for "", which means all.

    Raises:
        UsageError: the text is neither empty nor a list of ports that `parse_ports` accepts.
    """
    return parse_ports(text) if text else None
