"""The ids of a session, which replace those of its ranks, and their replacement in requests and messages."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from relay_core.dap.messages import Arguments, Body

# The ids of a session, which replace those of its ranks, because two ranks use the same number for different things.
#
# Each pair of a rank's connection and one of that rank's ids gets an id of the session, which is never reused. A
# request about a value of a rank that has since continued or restarted therefore finds nothing instead of another
# value.

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


# Replaces the session's ids in the editor's requests with a rank's ids, and vice versa in the rank's messages.

GONE = "this value, frame or thread belongs to a rank that has since continued or ended"


class StaleId(Exception):
    """A request contains an id that is not in use, or ids of two ranks."""


class Translation:
    """The translation in both directions.

    Args:
        ids: The ids of the session.
    """

    def __init__(self, ids: Ids) -> None:
        self._arguments: dict[str, IdTable] = {
            "threadId": ids.threads,
            "frameId": ids.frames,
            "variablesReference": ids.values,
            "sourceReference": ids.sources,
        }
        self._fields: dict[str, IdTable] = {**self._arguments, "moduleId": ids.modules}
        self._targets: dict[str, IdTable] = {
            "goto": ids.goto_targets,
            "gotoTargets": ids.goto_targets,
            "stepIn": ids.step_targets,
            "stepInTargets": ids.step_targets,
        }
        self._lists: dict[str, IdTable] = {"stackFrames": ids.frames, "threads": ids.threads, "modules": ids.modules}
        """Fields that contain lists of objects, each of which has its own id."""

    def to_rank(self, command: str, arguments: Arguments) -> tuple[int | None, dict[str, object]]:
        """Return the connection of the rank that a request concerns, or None, and the arguments with the rank's ids.

        Raises:
            StaleId: an id is not in use, or two ids belong to different ranks.
        """
        members: set[int] = set()
        changed = dict(arguments)
        tables = {**self._arguments, **({"targetId": self._targets[command]} if command in self._targets else {})}
        for name, table in tables.items():
            if changed.get(name):
                member, changed[name] = _found(table, changed[name])
                members.add(member)
        source = changed.get("source")
        if isinstance(source, Mapping) and source.get("sourceReference"):
            member, local = _found(self._arguments["sourceReference"], source["sourceReference"])
            members.add(member)
            changed["source"] = {**source, "sourceReference": local}
        if len(members) > 1:
            raise StaleId(GONE)
        return (members.pop() if members else None), changed

    def to_editor(self, command: str, member: int, body: Body) -> Body:
        """Return the body of a response, or of an event, with the session's ids."""
        lists = {**self._lists, **({"targets": self._targets[command]} if command in self._targets else {})}
        translated: Body = self._translated(body, member, lists)
        return translated

    def _translated(self, found: Any, member: int, lists: Mapping[str, IdTable]) -> Any:
        if isinstance(found, list):
            return [self._translated(each, member, lists) for each in found]
        if not isinstance(found, dict):
            return found
        return {name: self._field(name, value, member, lists) for name, value in found.items()}

    def _field(self, name: str, value: Any, member: int, lists: Mapping[str, IdTable]) -> Any:
        if isinstance(value, dict):
            return self._translated(value, member, lists)
        if isinstance(value, list):
            table = lists.get(name)
            changed = self._translated(value, member, lists)
            return changed if table is None else [_with_id(each, member, table) for each in changed]
        if value and isinstance(value, (int, str)) and name in self._fields:  # 0 stands for no id
            return self._fields[name].give(member, value)
        return value


def _found(table: IdTable, number: object) -> tuple[int, object]:
    if (found := table.find(number)) is None:
        raise StaleId(GONE)
    return found


def _with_id(found: Any, member: int, table: IdTable) -> Any:
    match found:
        case {"id": int(local) | str(local)}:
            return {**found, "id": table.give(member, local)}
    return found
