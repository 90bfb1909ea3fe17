"""The grammars of `--ports`, such as `5678` or `5678-5680,5690`, and of `--ranks`, such as `3` or `0,3-5`."""

from __future__ import annotations

from relay_core.errors import UsageError
from relay_core.value_parsers import MAX_PORT, expand_ranges, is_port, parse_ranges

__all__ = ["parse_chosen_ports", "parse_chosen_ranks", "parse_ports", "parse_ranks"]

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
