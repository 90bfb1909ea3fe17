"""The grammar of `--ranks`: `3`, `0-7`, `0,3-5`, and any mix of these.

Bad: `7-0` (backwards), `abc`, an empty text, a rank twice, and more than `MAX_RANKS` ranks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from relay_client.cli.port_ranges import format_ports
from relay_core.errors import UsageError

__all__ = ["format_ranks", "parse_ranks"]

MAX_RANKS = 1024
"""More than one hybrid connection holds: 25 nodes of 8."""
_PART = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", re.ASCII)


def parse_ranks(text: str) -> list[int]:
    """Return the ranks in the order written.

    Raises:
        UsageError: the text is no list of ranks.
    """
    ranks: list[int] = []
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if not match:
            raise UsageError(f"'{text}' is no list of ranks", hint="write 3, 0-7 or 0,3-5")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UsageError(f"'{part.strip()}' runs backwards", hint=f"write {last}-{first}")
        if last - first >= MAX_RANKS or len(ranks) + last - first >= MAX_RANKS:
            raise UsageError(f"'{text}' is more than {MAX_RANKS} ranks", hint="name fewer ranks")
        ranks.extend(range(first, last + 1))
    if len(set(ranks)) != len(ranks):
        raise UsageError(f"'{text}' names a rank twice", hint="name each rank once")
    return ranks


def format_ranks(ranks: Iterable[int]) -> str:
    """Return ranks in words: `rank 3`, `ranks 0-3,5`."""
    ordered = sorted(ranks)
    return f"rank{'s' if len(ordered) != 1 else ''} {format_ports(ordered)}"
