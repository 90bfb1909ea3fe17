"""The ids of a session, which replace those of its ranks, because two ranks use the same number for different things.

Each pair of a rank's connection and one of that rank's ids gets an id of the session, which is never reused. A request
about a value of a rank that has since continued or restarted therefore finds nothing instead of another value.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

__all__ = ["IdTable", "Ids"]

LocalId = int | str
"""An id that a rank uses; the ids of modules may be strings."""


class IdTable:
    """The ids of one kind."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._given: dict[tuple[int, LocalId], int] = {}
        self._meant: dict[int, tuple[int, LocalId]] = {}

    def __len__(self) -> int:
        return len(self._given)

    def __repr__(self) -> str:
        return f"<IdTable {len(self._given)}>"

    def give(self, member: int, local: LocalId) -> int:
        """Return the session's id for a rank's id; the first call creates it."""
        key = (member, local)
        if key not in self._given:
            number = self._given[key] = next(self._numbers)
            self._meant[number] = key
        return self._given[key]

    def find(self, number: object) -> tuple[int, LocalId] | None:
        """Return the rank's connection and the rank's id; None if nothing has the session's id now."""
        return self._meant.get(number) if isinstance(number, int) else None

    def forget(self, member: int) -> None:
        """Drop all ids of a rank's connection."""
        for key in [key for key in self._given if key[0] == member]:
            del self._meant[self._given.pop(key)]


class Ids:
    """The ids of all kinds."""

    def __init__(self) -> None:
        self.threads = IdTable()
        self.frames = IdTable()
        self.values = IdTable()
        """Each `variablesReference` of a scope or a value."""
        self.sources = IdTable()
        self.modules = IdTable()
        self.goto_targets = IdTable()
        self.step_targets = IdTable()

    def __repr__(self) -> str:
        return f"<Ids threads={len(self.threads)} frames={len(self.frames)} values={len(self.values)}>"

    @property
    def _of_stop(self) -> Iterable[IdTable]:
        return self.frames, self.values, self.goto_targets, self.step_targets

    def resumed(self, member: int) -> None:
        """Forget the ids that a debugger invalidates when its process resumes."""
        for table in self._of_stop:
            table.forget(member)

    def left(self, member: int) -> None:
        """Forget all ids of a rank whose connection has ended."""
        for table in (*self._of_stop, self.threads, self.sources, self.modules):
            table.forget(member)
