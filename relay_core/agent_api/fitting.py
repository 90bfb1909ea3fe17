"""Shrinks an announcement until it fits into a frame, so that a node may have any number of targets.

    1. texts are shortened, and only the latest endings are kept
    2. what most targets have in common is sent once, in `common`
    3. details of each target are left out, in the order of `EXPENDABLE`
    4. the targets with the highest ports, and forwards, are left out

The result follows from the announcement alone. 1,000 targets need steps 1 to 3; all remain reachable, with
rank and state.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping

from relay_core.agent_api.values import items, mapping

__all__ = ["COMMON_FIELDS", "MAX_ANNOUNCEMENT", "fit"]

MAX_ANNOUNCEMENT = 31 * 1024
"""Bytes of JSON; a frame holds 32 KiB, and a WELCOME has other fields as well."""
COMMON_FIELDS = ("world", "script", "cwd", "state")
EXPENDABLE = ("since", "until", "pid", "held_since", "detail", "cwd", "world", "script", "state", "holder", "rank")
"""Fields of targets, from the least important one."""
MAX_SHORT_TEXT = 64
"""Characters of a text in step 1."""
MAX_ENDINGS = 8
"""Endings in step 1."""
MAX_FORWARDS = 256
"""Forwards in step 4."""

Fields = dict[str, object]


def fit(announcement: Mapping[str, object], limit: int = MAX_ANNOUNCEMENT) -> Fields:
    """Return an announcement of at most `limit` bytes of JSON, the same one if it fits."""
    if _size(announcement) <= limit:
        return dict(announcement)
    rest = _short({name: value for name, value in announcement.items() if name not in {"targets", "common"}})
    if "endings" in rest:
        rest["endings"] = [_short(mapping(ending)) for ending in items(rest["endings"])[-MAX_ENDINGS:]]
    targets = [_short(mapping(target)) for target in items(announcement.get("targets"))]
    common: Fields = {}

    def assembled(count: int | None = None) -> Fields:
        return {**rest, "targets": targets[:count], "common": common}

    if _size(assembled()) > limit:
        targets, common = _with_common(targets)
    for name in EXPENDABLE:
        if _size(assembled()) <= limit:
            return assembled()
        targets, common = [_without(target, name) for target in targets], _without(common, name)
    if _size(assembled()) > limit:
        rest |= {"endings": []} if "endings" in rest else {}
        rest["forwards"] = items(rest.get("forwards"))[:MAX_FORWARDS]
    return assembled(_most(lambda count: _size(assembled(count)) <= limit, len(targets)))


def _with_common(targets: list[Fields]) -> tuple[list[Fields], Fields]:
    """Return targets without the most frequent values, and these; a target that lacks a common field has it as null."""
    common: Fields = {}
    for name in COMMON_FIELDS:
        for value, _ in Counter(target.get(name) for target in targets).most_common(1):
            common |= {} if value is None else {name: value}
    different = [
        {name: target.get(name) for name in {**target, **common} if target.get(name) != common.get(name)}
        for target in targets
    ]
    return different, common


def _without(fields: Fields, name: str) -> Fields:
    return {key: value for key, value in fields.items() if key != name}


def _most(fits: Callable[[int], bool], count: int) -> int:
    """Return the highest number up to `count` that fits; a lower number fits if a higher one does."""
    low, high = 0, count
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _short(fields: Mapping[str, object]) -> Fields:
    return {name: _short_text(name, value) if isinstance(value, str) else value for name, value in fields.items()}


def _short_text(name: str, value: str) -> str:
    return value if name == "cwd" else value[:MAX_SHORT_TEXT]  # the beginning of a path is another path


def _size(fields: Mapping[str, object]) -> int:
    """Return the size of the JSON that the tunnel sends."""
    return len(json.dumps(fields, separators=(",", ":")))
