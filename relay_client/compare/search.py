"""Search for the first difference of two values by the checksums of ever smaller parts; sans-IO.

search = Search(first, second)          the values of the same selection of both
while (selection := search.next()):     request this selection of both ...
    search.received(first, second)      ... and pass the values on
search.difference
"""

from __future__ import annotations

from dataclasses import dataclass

from relay_core.agent_api.evaluation import Leaf, Selection, Value, part_bounds

__all__ = ["Difference", "Search"]

MAX_STEPS = 32
"""A selection shrinks to a sixteenth in each step, so more are due to values that change meanwhile."""


@dataclass(frozen=True)
class Difference:
    """The first difference of two values."""

    leaf: str = ""
    """The name of the tensor or array; "" if the value is one."""
    description: str = ""
    """Shape and dtype in the first value."""
    element: int | None = None
    """The index in the flat array; None if the leaves differ in kind."""
    first: str = ""
    """The element, or the leaf, of the first value."""
    second: str = ""
    note: str = ""
    """Why the search ended early."""


class Search:
    """A search in progress.

    Args:
        first: A value, of a selection.
        second: Another one with another checksum.
        selection: The selection.
    """

    def __init__(self, first: Value, second: Value, selection: Selection | None = None) -> None:
        self.difference: Difference | None = None
        self._selection = selection or Selection()
        self._steps = 0
        self._next: Selection | None = None
        self.received(first, second)

    def __repr__(self) -> str:
        return f"<Search step {self._steps} {self.difference or self._selection}>"

    def next(self) -> Selection | None:
        """Return what to request of both values, or None at the end of the search."""
        return None if self.difference is not None else self._next

    def received(self, first: Value, second: Value) -> None:
        """Take the values of the selection that was requested."""
        self._selection = self._next or self._selection
        self._steps += 1
        failed = first.error or second.error
        if failed or self._steps > MAX_STEPS:
            self._end(failed or "the values change")
        elif self._selection.stop is None and first.leaves != second.leaves:
            self._next = Selection(0, min(first.leaves, second.leaves))
        elif first.leaf is not None and second.leaf is not None:
            self._of_leaves(first, second, first.leaf, second.leaf)
        elif first.leaf is not None or second.leaf is not None:
            self._of_extra(first.leaf, second.leaf)
        elif first.digest == second.digest and first.leaves != second.leaves:
            common = min(first.leaves, second.leaves)
            self._next = Selection(common, common + 1)
        else:
            self._of_parts(first, second)

    def _of_leaves(self, first: Value, second: Value, one: Leaf, other: Leaf) -> None:
        if (one.name, one.description, one.elements) != (other.name, other.description, other.elements):
            shown = [one.description, other.description]
            if one.name != other.name:
                shown = [f"'{leaf.name}' {leaf.description}" for leaf in (one, other)]
            self.difference = Difference(one.name, "", None, *shown)
        elif one.shown and other.shown and self._selection.elements:
            pairs = enumerate(zip(one.shown, other.shown, strict=False), self._selection.elements[0])
            found = next(((index, *pair) for index, pair in pairs if pair[0] != pair[1]), None)
            if found is None:
                self._end("the values differ in bits that their text does not show", one)
            else:
                self.difference = Difference(one.name, one.description, *found)
        else:
            self._of_parts(first, second)

    def _of_extra(self, one: Leaf | None, other: Leaf | None) -> None:
        """Name the first tensor or value that only one of them has."""
        leaf = one or other
        assert leaf is not None  # noqa: S101 - the caller has checked that
        self.difference = Difference(
            leaf.name, "", None, *(found.description if found else "missing" for found in (one, other))
        )

    def _of_parts(self, first: Value, second: Value) -> None:
        pairs = enumerate(zip(first.parts, second.parts, strict=False))
        index = next((index for index, (one, other) in pairs if one != other), None)
        here = self._selection
        if index is None:
            note = (
                "the values change"
                if first.digest == second.digest
                else "the checksums differ, but no differing part was found"
            )
            self._end(note, first.leaf)
            return
        if first.leaf is None:
            bounds = part_bounds(here.start, first.leaves if here.stop is None else here.stop)
            self._next = Selection(*bounds[index])
        else:
            bounds = part_bounds(*(here.elements or (0, first.leaf.elements)))
            self._next = Selection(here.start, here.start + 1, bounds[index])

    def _end(self, note: str, leaf: Leaf | None = None) -> None:
        self.difference = Difference(leaf.name if leaf else "", leaf.description if leaf else "", note=note)
