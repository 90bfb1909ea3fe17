"""Grammar of `--debug-ranks`, which selects the ranks of a job that wait for a debugger.

    good:  0        the first rank (the default)
           0,3-5    these four ranks
           all      every rank
           master   the first rank, as other tools call it
           none     no rank: all are on demand
    bad:   5-3      start greater than end
           1.5, ""  not numbers

A rank that is not selected can still be debugged on demand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from relay_core.value_parsers import parse_ranges

if TYPE_CHECKING:
    from relay_agent.ranks.identity import ProcessIdentity

__all__ = ["DEFAULT_RANKS", "RankSelection", "parse_ranks"]

DEFAULT_RANKS = "0"
"""The first rank only: one process waits, as in a job without ranks, and the others can be attached to on demand."""


class RankSelection(NamedTuple):
    """A set of ranks, stored as ranges because a text can name billions of them."""

    ranges: tuple[tuple[int, int], ...] = ()
    """First and last rank of each range, ascending, neither overlapping nor adjacent."""
    every: bool = False
    """Whether all ranks are selected."""

    def includes(self, identity: ProcessIdentity) -> bool:
        """Return whether this process is selected."""
        return self.every or any(first <= identity.rank <= last for first, last in self.ranges)

    def __str__(self) -> str:
        if self.every:
            return "all"
        return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in self.ranges) or "none"


def parse_ranks(text: str = DEFAULT_RANKS) -> RankSelection:
    """Return the ranks that a text selects.

    Raises:
        UsageError: the text does not follow the grammar.
    """
    word = text.strip().lower()
    if word in _WORDS:
        return _WORDS[word]
    merged: list[tuple[int, int]] = []
    found = parse_ranges(text, what="list of ranks", example="a list such as 0,3-5, or all, master or none")
    for first, last in sorted((part[0], part[-1]) for part in found):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return RankSelection(tuple(merged))


_WORDS = {
    "all": RankSelection(every=True),
    "master": RankSelection(((0, 0),)),
    "none": RankSelection(),
}
