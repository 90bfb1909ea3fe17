"""Which ranks of a job wait for a debugger: the value of `--debug-ranks`.

    good:  0        the first rank (the default)
           0,3-5    these four
           all      every rank
           master   the first rank, by the name that it has elsewhere
           none     no rank: all are on demand
    bad:   5-3      (from high to low)    -1, 1.5, last, "" (no numbers)

A rank that is not selected is debuggable all the same, when somebody asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from relay_core.errors import UsageError

if TYPE_CHECKING:
    from relay_agent.ranks.identity import ProcessIdentity

__all__ = ["DEFAULT_RANKS", "RankSelection", "parse_ranks"]

DEFAULT_RANKS = "0"
"""One process to attach to, as a job that nobody distributed has; the others are a click away and cost nothing."""

_LONGEST_NUMBER = 9
"""Digits; no job has a rank with more of them."""
_HINT = "say for example 0 or 0,3-5, or all, master or none"


class RankSelection(NamedTuple):
    """A set of ranks, as large as a text can name."""

    ranges: tuple[tuple[int, int], ...] = ()
    """First and last rank of each range, ascending and with gaps between them."""
    every: bool = False
    """Whether all ranks are selected, however many there are."""

    def includes(self, identity: ProcessIdentity) -> bool:
        """Return whether this process is selected."""
        return self.every or any(first <= identity.rank <= last for first, last in self.ranges)

    def __str__(self) -> str:
        if self.every:
            return "all"
        return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in self.ranges) or "none"


def parse_ranks(text: str = DEFAULT_RANKS) -> RankSelection:
    """Return the ranks that `text` names.

    Raises:
        UsageError: it names none in this way.
    """
    word = text.strip().lower()
    if word in _WORDS:
        return _WORDS[word]
    ranges: list[tuple[int, int]] = []
    for first, last in sorted(_range(part, text) for part in word.split(",")):
        if ranges and first <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
        else:
            ranges.append((first, last))
    return RankSelection(tuple(ranges))


_WORDS = {
    "all": RankSelection(every=True),
    "master": RankSelection(((0, 0),)),
    "none": RankSelection(),
}


def _range(part: str, text: str) -> tuple[int, int]:
    """Read "3" or "3-5"."""
    first, dash, last = (piece.strip() for piece in part.partition("-"))
    numbers = [first, last] if dash else [first, first]
    if not all(number.isascii() and number.isdecimal() and len(number) <= _LONGEST_NUMBER for number in numbers):
        raise UsageError(f"--debug-ranks '{text}' does not name ranks", hint=_HINT)
    low, high = map(int, numbers)
    if low > high:
        raise UsageError(f"--debug-ranks '{text}' has a range from high to low", hint=_HINT)
    return low, high
