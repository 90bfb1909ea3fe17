"""The ranks that continue, step and pause together: `all`, `here` or a list of ranks, such as `0,3-5`.

all         every rank
here        the ranks that are stopped at the same place as the rank that the editor shows
0,3-5       these ranks
bad: 5-3, x, "" (see `relay_core.value_parsers`)
"""

from __future__ import annotations

from dataclasses import dataclass

from relay_client.ui.text import format_ranks
from relay_core.errors import UsageError
from relay_core.value_parsers import expand_ranges, parse_ranges

__all__ = ["Group"]

MAX_RANKS = 4096
"""Maximum number of ranks in a list; no job has that many ranks on one hybrid connection."""
_WHAT = "group of ranks"


@dataclass(frozen=True)
class Group:
    """A choice of ranks."""

    ranks: frozenset[int] | None = None
    """The ranks in the list; None for `all` and `here`."""
    is_here: bool = False

    def __str__(self) -> str:
        if self.is_here:
            return "the ranks at the same place"
        return "all ranks" if self.ranks is None else format_ranks(self.ranks)

    @classmethod
    def parse(cls, text: str) -> Group:
        """Parse the text of a choice.

        Raises:
            UsageError: the text does not follow the grammar.
        """
        wanted = text.strip()
        if wanted in {"all", "here"}:
            return cls(is_here=wanted == "here")
        ranges = parse_ranges(wanted, what=_WHAT, example="all, here, 3 or 0,3-5")
        ranks = frozenset(expand_ranges(ranges, what=_WHAT, limit=MAX_RANKS))
        if not ranks:
            raise UsageError(f"invalid {_WHAT}: '{wanted[:80]}'", hint="use all, here, 3 or 0,3-5")
        return cls(ranks)
