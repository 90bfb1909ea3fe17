"""The ids of a session, which replace those of its ranks, and their replacement in requests and messages.

Two ranks use the same number for different things, so each pair of a rank's connection and one of that rank's ids gets
an id of the session, which is never reused. A request about a value of a rank that has since continued or restarted
therefore finds nothing instead of another value.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from relay_core.dap.messages import FIRST_SNAPSHOT, Arguments, Body

LocalId = int | str
"""An id that a rank uses; the ids of modules may be strings."""
THREAD = "thread"
_OF_STOP = ("frame", "value", "goto", "stepIn")
"""The kinds of ids that a debugger invalidates when its process resumes."""
SNAPSHOT = "snapshot"
"""The kind of the values that stay valid then."""
MAX_SNAPSHOT_IDS = 1000
"""Maximum number of their ids for each rank; more than the rank keeps values for."""
_ARGUMENTS = {"threadId": THREAD, "frameId": "frame", "variablesReference": "value", "sourceReference": "source"}
"""The kinds of ids in the arguments of requests."""
_FIELDS = {**_ARGUMENTS, "moduleId": "module"}
_TARGETS = {"goto": "goto", "gotoTargets": "goto", "stepIn": "stepIn", "stepInTargets": "stepIn"}
"""The kind of a target, by command."""
_LISTS = {"stackFrames": "frame", "threads": THREAD, "modules": "module"}
"""Fields that contain lists of objects, each of which has its own id."""
GONE = "this value, frame or thread belongs to a rank that has since continued or ended"


class StaleId(Exception):
    """A request contains an id that is not in use, or ids of two ranks."""


class Ids:
    """The ids of all kinds, and the translation in both directions."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._given: dict[tuple[int, str], dict[LocalId, int]] = {}
        """The session's ids, by the rank's connection, kind and id."""
        self._meant: dict[int, tuple[str, int, LocalId]] = {}
        """The kind, the rank's connection and the rank's id, by the session's id."""

    def give(self, kind: str, member: int, local: LocalId) -> int:
        """Return the session's id for a rank's id; the first call creates it."""
        kind = _kind(kind, local)
        given = self._given.setdefault((member, kind), {})
        if local not in given:
            if kind == SNAPSHOT and len(given) == MAX_SNAPSHOT_IDS:
                del self._meant[given.pop(next(iter(given)))]
            number = given[local] = next(self._numbers)
            self._meant[number] = kind, member, local
        return given[local]

    def resumed(self, member: int) -> None:
        """Forget the ids that a debugger invalidates when its process resumes."""
        self._forget((member, kind) for kind in _OF_STOP)

    def left(self, member: int) -> None:
        """Forget all ids of a rank whose connection has ended."""
        self._forget([key for key in self._given if key[0] == member])

    def _forget(self, keys: Iterable[tuple[int, str]]) -> None:
        for key in keys:
            for number in self._given.pop(key, {}).values():
                del self._meant[number]

    def to_rank(self, command: str, arguments: Arguments) -> tuple[int | None, dict[str, object]]:
        """Return the connection of the rank that a request concerns, or None, and the arguments with the rank's ids.

        Raises:
            StaleId: an id is not in use, or two ids belong to different ranks.
        """
        members: set[int] = set()
        changed = dict(arguments)

        def found(kind: str, number: object) -> LocalId:
            meant = self._meant.get(number) if isinstance(number, int) else None
            if meant is None or meant[0] != _kind(kind, meant[2]):
                raise StaleId(GONE)
            members.add(meant[1])
            return meant[2]

        for name, kind in {**_ARGUMENTS, "targetId": _TARGETS.get(command)}.items():
            if kind and changed.get(name):
                changed[name] = found(kind, changed[name])
        source = changed.get("source")
        if isinstance(source, Mapping) and source.get("sourceReference"):
            changed["source"] = {**source, "sourceReference": found("source", source["sourceReference"])}
        if len(members) > 1:
            raise StaleId(GONE)
        return (members.pop() if members else None), changed

    def to_editor(self, command: str, member: int, body: Body) -> Body:
        """Return the body of a response, or of an event, with the session's ids."""
        lists = {**_LISTS, **({"targets": _TARGETS[command]} if command in _TARGETS else {})}
        translated: Body = self._translated(body, member, lists)
        return translated

    def _translated(self, found: Any, member: int, lists: Mapping[str, str]) -> Any:
        if isinstance(found, list):
            return [self._translated(each, member, lists) for each in found]
        if not isinstance(found, dict):
            return found
        return {name: self._field(name, value, member, lists) for name, value in found.items()}

    def _field(self, name: str, value: Any, member: int, lists: Mapping[str, str]) -> Any:
        if isinstance(value, dict):
            return self._translated(value, member, lists)
        if isinstance(value, list):
            kind = lists.get(name)
            changed = self._translated(value, member, lists)
            return changed if kind is None else [self._with_id(each, member, kind) for each in changed]
        if value and isinstance(value, (int, str)) and name in _FIELDS:  # 0 stands for no id
            return self.give(_FIELDS[name], member, value)
        return value

    def _with_id(self, found: Any, member: int, kind: str) -> Any:
        match found:
            case {"id": int(local) | str(local)}:
                return {**found, "id": self.give(kind, member, local)}
        return found


def _kind(kind: str, local: LocalId) -> str:
    return SNAPSHOT if kind == "value" and isinstance(local, int) and local >= FIRST_SNAPSHOT else kind
