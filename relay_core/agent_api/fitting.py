"""Shrinks an announcement until it fits into a frame, so that a node can have any number of targets.

    1. texts are shortened, only the latest endings are kept, and the usage of processes is left out
    2. values that most targets have in common are sent once, in `common`
    3. details of each target are left out, in the order of `EXPENDABLE`
    4. once the fields before `IN_RUNS` are left out, targets with only a port and a rank are sent in `runs`
    5. the targets with the highest ports, and forwards, are left out

A run represents targets with consecutive ports and ranks. It is an array with the first port, then the number of
targets (omitted for a single target without a rank), then the first rank (omitted if the targets have no ranks).

The result depends only on the announcement. For 1,000 targets, steps 1 to 3 are enough. With runs, any number of
targets remains reachable, with rank and state, unless thousands of them have non-consecutive ports.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from relay_core.agent_api.values import count, items, mapping, port
from relay_core.value_parsers import MAX_PORT

__all__ = ["COMMON_FIELDS", "MAX_ANNOUNCEMENT", "count_targets", "fit", "targets_of_runs"]

MAX_ANNOUNCEMENT = 31 * 1024
"""Maximum size of the JSON in bytes; a frame holds 32 KiB, and a WELCOME has other fields too."""
COMMON_FIELDS = ("world", "script", "cwd", "state")
EXPENDABLE = (
    *("peer_timeout", "pushes", "since", "until", "stopped_since", "resumed_since", "pid", "held_since"),
    *("stopped_at", "uncaught"),
    *("detail", "cwd", "world", "script", "state", "stopped", "holder", "rank"),
)
"""Fields of targets, the least important first."""
IN_RUNS = "detail"
"""Runs are used once all fields of `EXPENDABLE` before this one have been left out, because those fields differ between
all targets of a job."""
MAX_SHORT_TEXT = 64
"""Maximum number of characters in a text after step 1."""
MAX_ENDINGS = 8
"""Maximum number of endings after step 1."""
MAX_FORWARDS = 256
"""Maximum number of forwards after step 5."""

Fields = dict[str, object]


def fit(announcement: Mapping[str, object], limit: int = MAX_ANNOUNCEMENT) -> Fields:
    """Return an announcement with at most `limit` bytes of JSON; if the given one fits, it is returned unchanged."""
    if _size(announcement) <= limit:
        return dict(announcement)
    rest = _short({name: value for name, value in announcement.items() if name not in {"targets", "common", "usage"}})
    if usage := mapping(announcement.get("usage")):
        rest["usage"] = {**usage, "processes": []}
    if "endings" in rest:
        rest["endings"] = [_short(mapping(ending)) for ending in items(rest["endings"])[-MAX_ENDINGS:]]
    targets = [_short(mapping(target)) for target in items(announcement.get("targets"))]
    common: Fields = {}
    has_runs = False

    def assembled(number: int | None = None) -> Fields:
        kept, runs = _with_runs(targets[:number]) if has_runs else (targets[:number], [])
        return {**rest, "targets": kept, "runs": runs, "common": common}

    if _size(assembled()) > limit:
        targets, common = _with_common(targets)
    for name in EXPENDABLE:
        has_runs = has_runs or name == IN_RUNS
        if _size(assembled()) <= limit:
            return assembled()
        targets, common = [_without(target, name) for target in targets], _without(common, name)
    if _size(assembled()) > limit:
        rest |= {"endings": []} if "endings" in rest else {}
        rest["forwards"] = items(rest.get("forwards"))[:MAX_FORWARDS]
    return assembled(_most(lambda number: _size(assembled(number)) <= limit, len(targets)))


def count_targets(announcement: Mapping[str, object]) -> int:
    """Return the number of targets in an announcement."""
    return len(items(announcement.get("targets"))) + sum(1 for _ in targets_of_runs(announcement.get("runs")))


def targets_of_runs(runs: object) -> Iterator[Fields]:
    """Yield the targets that `runs` represents, at most one per port."""
    left = MAX_PORT
    for run in items(runs):
        first, length, rank = [*items(run)[:3], *[None] * 3][:3]
        first, length, rank = port(first), 1 if length is None else count(length), count(rank)
        if first is None or length is None:
            continue
        length = min(length, MAX_PORT + 1 - first, left)
        left -= length
        for number in range(length):
            yield {"port": first + number, **({} if rank is None else {"rank": rank + number})}


def _with_runs(targets: list[Fields]) -> tuple[list[Fields], list[list[object]]]:
    """Return the targets that have fields other than port and rank, and the runs of the other targets."""
    kept: list[Fields] = []
    found: list[tuple[int, int, int | None]] = []
    for target in targets:
        number, rank = port(target.get("port")), count(target.get("rank"))
        if number is None or not target.keys() <= {"port", "rank"}:
            kept.append(target)
            continue
        first, length, first_rank = found[-1] if found else (0, 0, None)
        if number == first + length and rank == (None if first_rank is None else first_rank + length):
            found[-1] = (first, length + 1, first_rank)
        else:
            found.append((number, 1, rank))
    return kept, [_run(*run) for run in found]


def _run(first: int, length: int, rank: int | None) -> list[object]:
    if rank is not None:
        return [first, length, rank]
    return [first] if length == 1 else [first, length]


def _with_common(targets: list[Fields]) -> tuple[list[Fields], Fields]:
    """Return the targets without the most frequent values, and those values; a field that a target lacks is null."""
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
    # A truncated path would name another directory, and a truncated link another page.
    return value if name in {"cwd", "run_url"} else value[:MAX_SHORT_TEXT]


def _size(fields: Mapping[str, object]) -> int:
    """Return the size of the JSON that the tunnel sends."""
    return len(json.dumps(fields, separators=(",", ":")))
