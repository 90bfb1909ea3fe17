"""Ids of one session in place of the ids of each rank: two ranks use the same numbers for different things.

An id is given to each pair of a rank's connection and an id of that rank, and is never used again. So a request about a
value of a rank that has gone on, or has been restarted, finds nothing instead of something else.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

__all__ = ["IdTable", "Ids"]

LocalId = int | str
"""The id of a rank; those of modules may be texts."""


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
        """Return the id in this session of a rank's id, a new one at the first call."""
        key = (member, local)
        if key not in self._given:
            number = self._given[key] = next(self._numbers)
            self._meant[number] = key
        return self._given[key]

    def find(self, number: object) -> tuple[int, LocalId] | None:
        """Return the rank's connection and its own id, or None for an id that is not, or no longer, in use."""
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
        """`variablesReference`, of scopes and of values."""
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
