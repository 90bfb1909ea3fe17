"""The grammar of `--ranks` and `--rank`: a list of global ranks such as `3`, `0-7` or `0,3-5`."""

from __future__ import annotations

from relay_core.ranges import expand_ranges, parse_ranges

__all__ = ["parse_ranks"]

MAX_RANKS = 1024
"""More than one hybrid connection can have: 25 nodes with 8 ranks each."""

_WHAT = "list of ranks"


def parse_ranks(text: str) -> list[int]:
    """Return the ranks in the order written.

    Raises:
        UsageError: the text is not a list of ranks, lists a rank twice, or lists more than `MAX_RANKS`.
    """
    ranges = parse_ranges(text, what=_WHAT, example="3, 0-7 or 0,3-5")
    return expand_ranges(ranges, what=_WHAT, limit=MAX_RANKS)
