"""Search for the first difference between two values by comparing checksums of ever smaller parts; sans-IO.

search = Search(first, second)          the same selection, taken from each of the two values
while (selection := search.next()):     request this selection from both ...
    search.received(first, second)      ... and pass the values on
search.difference
"""

from __future__ import annotations

from relay_core.agent_api.evaluation import Difference, Leaf, Selection, Value, part_selections

MAX_STEPS = 32
"""A selection shrinks to a 24th in each step, so more steps are needed only if the values change in the meantime."""


class Search:
    """A search in progress.

    Args:
        first: The value of a selection in one process.
        second: The value of the same selection in another process, with a different checksum.
        selection: The selection.
    """

    def __init__(self, first: Value, second: Value, selection: Selection | None = None) -> None:
        self.difference: Difference | None = None
        self._selection = selection or Selection()
        self._steps = 0
        self._next: Selection | None = None
        self.received(first, second)

    def next(self) -> Selection | None:
        """Return the selection to request from both processes, or None at the end of the search."""
        return None if self.difference is not None else self._next

    def received(self, first: Value, second: Value) -> None:
        """Take the values of the selection that was requested."""
        self._selection = self._next or self._selection
        self._steps += 1
        failed = first.error or second.error
        if failed or self._steps > MAX_STEPS:
            self._end(failed or "the values keep changing")
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
                self._end("the values differ in bits that their text form does not show", one)
            else:
                self.difference = Difference(one.name, one.description, *found)
        else:
            self._of_parts(first, second)

    def _of_extra(self, one: Leaf | None, other: Leaf | None) -> None:
        """Name the first tensor or value that only one of the two processes has."""
        leaf = one or other
        assert leaf is not None  # noqa: S101 - the caller has checked that
        self.difference = Difference(
            leaf.name, "", None, *(found.description if found else "missing" for found in (one, other))
        )

    def _of_parts(self, first: Value, second: Value) -> None:
        parts = zip(part_selections(self._selection, first), first.parts, second.parts, strict=False)
        self._next = next((selection for selection, one, other in parts if one != other), None)
        if self._next is None:
            note = (
                "the values keep changing"
                if first.digest == second.digest
                else "the checksums differ, but no differing part was found"
            )
            self._end(note, first.leaf)

    def _end(self, note: str, leaf: Leaf | None = None) -> None:
        self.difference = Difference(leaf.name if leaf else "", leaf.description if leaf else "", note=note)
