"""Process groups of this process and their progress, from torch's flight recorder and its sequence numbers."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from relay_agent.job.gevent_originals import json, time
from relay_core.agent_api.collectives import (
    MAX_GROUPS,
    MAX_OPERATIONS,
    GroupRecord,
    Operation,
    ProcessCollectives,
    Progress,
)
from relay_core.agent_api.questions import ReadProgress
from relay_core.grouping import by_key
from relay_core.json_values import count, items, mapping, text
from relay_core.value_parsers import format_ranges

# Process groups of this process, from torch's flight recorder.
#
# torch records every collective operation of a process, without any setting, in one of two recorders: one for NCCL, and
# one for all other backends, such as gloo. Both are read as JSON, and a rank is paused only while they are being read.
# This module never imports torch: it uses only what the job has already imported.
#
#     recorder   read by                    since torch   an operation is complete if
#     other      _dump_fr_trace_json        2.8           it is retired; its state stays "scheduled"
#     nccl       _dump_nccl_trace_json      2.5           its state is "completed"; retired in another state: timed out
#
# While NCCL connects inside an operation, such as the first one of its kind, the state is "completed" as well: the
# event that marks its end is not on the stream yet, and a query of such an event returns true. torch's watchdog retires
# an operation within 0.1 s of its completion, so an operation that it has not retired for longer is not complete. This
# can only be the last operation of a group: a rank that has begun another one has returned from it.

READERS = {"other": "_dump_fr_trace", "nccl": "_dump_nccl_trace"}
"""Functions of `torch._C._distributed_c10d` that return pickled dumps, by recorder; with `_json` at the end, JSON."""
SIZE_VARIABLES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
"""Variables that set how many operations a recorder keeps: the newer and the older name."""
MAX_ENTRIES = 20_000
"""Maximum size of a recorder that is read completely. The job waits while its operations are parsed: 20 to 80 ms for
the default of 2000."""
MAX_TENSORS = 4
"""Maximum number of tensors that are described for an operation."""
MAX_DIMENSIONS = 8
MAX_NAME = 80
"""Maximum number of characters in a name; the name of a group may be a SHA-1 hash."""
RETIRED_WITHIN = 2.0
"""Seconds within which NCCL's watchdog retires an operation that was complete when it was entered; it takes 0.1 s, and
more if the processors are busy."""
FIRST_INCOMPLETE = 3
"""Number of operations to report, starting with the first incomplete one, in addition to the latest operations."""

_TYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Int": "int32", "Long": "int64",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool",
}  # fmt: skip
"""Python names of types, by their names in the recorder."""
_NAMES = {
    "_all_gather_base": "all_gather_into_tensor", "_reduce_scatter_base": "reduce_scatter_tensor",
    "_broadcast_oop": "broadcast", "_reduce_oop": "reduce", "all_reduce_barrier": "barrier",
}  # fmt: skip
"""Names in `torch.distributed` of operations that have other names in the recorder."""


def read_recorders() -> ProcessCollectives:
    """Return the rank of this process and its groups, from its recorders, or why they are not known."""
    torch = sys.modules.get("torch")
    if torch is None:
        return ProcessCollectives(problem="torch is not imported")
    if getattr(getattr(torch, "__spec__", None), "_initializing", False):
        return ProcessCollectives(problem="torch is still being imported")
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    members = members_of_groups(c10d)
    if not members:
        return ProcessCollectives(problem="torch.distributed has no process group")
    groups: list[GroupRecord] = []
    problems = []
    readers = {kind: reader for kind in READERS if (reader := find_reader(kind, "_json"))}
    complete = True
    for kind, reader in readers.items():
        dump, problem, has_completed = _dump(kind, reader)
        problems += [problem] if problem else []
        records, is_whole = parse_dump(dump, kind, time.time())
        complete = complete and is_whole and has_completed
        groups += [record._replace(ranks=members.get(record.name, ())) for record in records]
    if not readers:
        version = str(getattr(torch, "__version__", "")) or "unknown version"
        problems.append(
            f"torch {version} has no flight recorder that can be read; use torch 2.8 or later (2.5 or later for NCCL)"
        )
    elif complete:  # otherwise the operations of a group may be too old, or unreadable
        recorded = {group.name for group in groups}
        groups += [GroupRecord(name, ranks=ranks) for name, ranks in members.items() if name not in recorded]
    groups.sort(key=lambda group: group.enqueued <= group.completed)  # those with an incomplete operation first
    return ProcessCollectives(_rank(c10d), tuple(groups[:MAX_GROUPS]), "; ".join(problems))


def find_reader(recorder: str, form: str = "") -> Callable[..., Any] | None:
    """Return torch's function that reads a recorder; None if it is missing.

    Args:
        recorder: A key of `READERS`.
        form: "_json" for JSON.
    """
    bindings = getattr(getattr(sys.modules.get("torch"), "_C", None), "_distributed_c10d", None)
    return getattr(bindings, f"{READERS.get(recorder)}{form}", None)


def members_of_groups(c10d: Any) -> dict[str, tuple[int, ...]]:
    """Return the global ranks of each group that this process is a member of, by the name of the group."""
    world = getattr(c10d, "_world", None)
    ranks: Mapping[Any, Mapping[int, int]] = getattr(world, "pg_group_ranks", {})
    found = {}
    for group, name in list(getattr(world, "pg_names", {}).items()):
        by_group_rank = sorted(ranks.get(group, {}).items(), key=lambda pair: pair[1])
        found[str(name)[:MAX_NAME]] = tuple(rank for rank, _ in by_group_rank)
    return found


def _rank(c10d: Any) -> int | None:
    """Return the global rank of this process."""
    group = getattr(getattr(c10d, "_world", None), "default_pg", None)
    return None if group is None else int(group.rank())


def _dump(kind: str, reader: Callable[..., object]) -> tuple[object, str, bool]:
    """Return a recorder's dump, the reason if there is none, and whether the dump includes completed operations."""
    size = next((int(text) for name in SIZE_VARIABLES if (text := os.environ.get(name, "")).isdecimal()), 0)
    if size > MAX_ENTRIES and kind != "nccl":
        return None, f"torch's flight recorder keeps up to {size} operations, which are too many to read", False
    try:
        # Incomplete operations only, if there are many; the other recorder regards all of its operations as incomplete.
        found: Any = reader(True, True) if size > MAX_ENTRIES else reader()
        return json.loads(found), "", size <= MAX_ENTRIES
    except (TypeError, ValueError, RuntimeError, RecursionError) as error:
        return None, f"torch's flight recorder cannot be read: {type(error).__name__}: {error}"[:200], False


def parse_dump(dump: object, kind: str, now: float) -> tuple[list[GroupRecord], bool]:
    """Return the groups in a dump, without their ranks, and whether the dump contains all operations since the start.

    Args:
        dump: Parsed JSON; fields of an unexpected type are ignored.
        kind: The recorder, a key of `READERS`.
        now: Unix time.
    """
    entries = [mapping(entry) for entry in items(mapping(dump).get("entries"))]
    by_group = by_key((group_name(entry, 0), entry) for entry in entries)
    is_whole = not entries or entries[0].get("record_id") == 0
    return [_group(name, kind, found, now) for name, found in by_group.items() if name], is_whole


def group_name(entry: Mapping[str, object], index: int) -> str:
    """Return the name of an entry's group, or the description of the group if `index` is 1."""
    group = entry.get("process_group")
    names = list(group) if isinstance(group, tuple) else items(group)  # a pickled dump has tuples
    return text(names[index])[:MAX_NAME] if len(names) > index else ""


def _group(name: str, kind: str, entries: list[Mapping[str, object]], now: float) -> GroupRecord:
    by_number: dict[int, Mapping[str, object]] = {}
    incomplete: list[int] = []
    for entry in entries:
        number = count(entry.get("collective_seq_id"))
        if not number or entry.get("is_p2p") is True:  # point-to-point operations have their own numbers
            continue
        by_number.setdefault(number, entry)
        if not _is_complete(entry, kind):
            incomplete.append(number)
    enqueued = max(by_number, default=0)
    if kind == "nccl" and enqueued and _is_connecting(by_number[enqueued], now):
        incomplete.append(enqueued)
    completed = min(incomplete, default=enqueued + 1) - 1
    reported = _reported(sorted(by_number), completed)
    return GroupRecord(
        name,
        group_name(entries[-1], 1),
        kind,
        enqueued=enqueued,
        completed=completed,
        operations=tuple(_operation(by_number[number], number, now) for number in reported),
        longest_gap=_longest_gap(by_number),
    )


def _longest_gap(by_number: Mapping[int, Mapping[str, object]]) -> float:
    times = [count(by_number[number].get("time_created_ns")) for number in sorted(by_number)]
    return max((later - earlier for earlier, later in itertools.pairwise(times) if earlier and later), default=0) / 1e9


def _reported(numbers: list[int], completed: int) -> list[int]:
    """Choose the numbers of the operations to report."""
    first = [number for number in numbers if number > completed][:FIRST_INCOMPLETE]
    return sorted({*first, *numbers[-(MAX_OPERATIONS - FIRST_INCOMPLETE) :]})


def _is_complete(entry: Mapping[str, object], kind: str) -> bool:
    return entry.get("state") == "completed" or (kind != "nccl" and entry.get("retired") is True)


def _is_connecting(entry: Mapping[str, object], now: float) -> bool:
    """Return whether an operation of NCCL that seems complete, the last one of its group, is not on its stream yet."""
    return entry.get("retired") is False and (_age(entry, now) or 0.0) > RETIRED_WITHIN


def _age(entry: Mapping[str, object], now: float) -> float | None:
    created = count(entry.get("time_created_ns"))
    return None if created is None else max(0.0, now - created / 1e9)


def _operation(entry: Mapping[str, object], number: int, now: float) -> Operation:
    name = text(entry.get("profiling_name")).rpartition(":")[2]
    return Operation(
        number,
        _NAMES.get(name, name)[:MAX_NAME] or "an operation",
        _tensors(entry.get("input_sizes"), entry.get("input_dtypes")),
        _age(entry, now),
    )


def _tensors(sizes: object, types: object) -> str:
    """Describe tensors: `[16] float32, [2, 3] int64`."""
    shapes, names = items(sizes), items(types)
    described = list(_described(shapes[:MAX_TENSORS], names))
    if len(shapes) > MAX_TENSORS:
        described.append(f"{len(shapes) - MAX_TENSORS} more")
    return ", ".join(described)


def _described(shapes: list[object], names: list[object]) -> Iterator[str]:
    for index, shape in enumerate(shapes):
        dimensions = [str(count(size)) for size in items(shape)[:MAX_DIMENSIONS]]
        name = text(names[index])[:MAX_NAME] if index < len(names) else ""
        yield f"[{', '.join(dimensions)}] {_TYPES.get(name, name.lower())}".rstrip()


# How many collective operations this process has begun, from the numbers that torch gives to them.
#
# Reading a number takes a microsecond; torch's flight recorder has the same numbers, but reading it takes 50 ms.


def begun_collectives() -> dict[str, int]:
    """Return how many collective operations this process has begun, by group; {} if that is not known.

    In a job whose ranks call the same operations, ranks have equal counts of a group between the same two operations of
    this group. Of very many groups, those with the most operations are reported.
    """
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    groups = getattr(getattr(c10d, "_world", None), "pg_names", {})
    try:
        members = members_of_groups(c10d)
        counts = {str(name): _number(group) for group, name in list(groups.items())}
    except Exception:  # noqa: BLE001 - whatever a backend that does not count raises
        return {}
    most = sorted(counts, key=lambda name: -counts[name])[:MAX_GROUPS]
    return {f"{name} {format_ranges(members.get(name, ()))}": counts[name] for name in most}


def read_progress(_question: ReadProgress) -> Progress:
    """Return how many operations this process has begun."""
    return Progress(begun_collectives())


def _number(group: object) -> int:
    """Return the number of a group's last operation, which may be one of several backends."""
    backends = {id(found): found for device in group._device_types if (found := group._get_backend(device))}  # type: ignore[attr-defined]  # noqa: SLF001 - it has no public one
    return sum(int(backend._get_sequence_number_for_group()) for backend in backends.values())  # noqa: SLF001
