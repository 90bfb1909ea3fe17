"""Where all ranks are, in one line: `ranks 0-2, 5-7 at train.py:41; rank 3 in all_reduce; rank 4 running`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from relay_client.job_session.members import Member
from relay_client.stacks.groups import COLLECTIVES
from relay_core.dap.messages import exception_of
from relay_core.value_parsers import format_ranges

__all__ = ["UNKNOWN", "WAITING", "names_of", "summary"]


UNKNOWN = "an unknown place"
WAITING = ", waiting for "
"""In a summary: running ranks wait in a collective operation for stopped ones."""
TOGETHER = "Continue brings them together"
MAX_CHILDREN = 4
"""Maximum number of child processes that are named one by one."""


def summary(members: Iterable[Member], running_in: Mapping[int, str]) -> str:
    """Return the summary line.

    Args:
        members: The ranks.
        running_in: What running ranks are doing, by member number: `in all_reduce`.
    """
    groups: dict[str, list[Member]] = {}
    for member in members:
        if member.name.child is not None and member.stop is None:
            continue  # a data loader is idle most of the time
        groups.setdefault(_where(member, running_in), []).append(member)
    waited_for = _waited_for(groups)
    reason = f"{WAITING}{names_of(waited_for)}" if waited_for else ""
    parts = [f"{names_of(found)} {where}{reason if _is_waiting(where) else ''}" for where, found in groups.items()]
    has_exception = any(member.stop.body.get("reason") == "exception" for member in waited_for if member.stop)
    return "; ".join([*parts, *([TOGETHER] if waited_for and not has_exception else [])])


def _waited_for(groups: Mapping[str, list[Member]]) -> list[Member]:
    """Return the stopped ranks, if all running ranks are in a collective operation, which the others do not reach."""
    running = [where for where, found in groups.items() if any(member.stop is None for member in found)]
    if not running or not all(map(_is_waiting, running)):
        return []
    return [member for found in groups.values() for member in found if member.stop is not None and member.name.is_rank]


def _is_waiting(where: str) -> bool:
    return where.removeprefix("in ") in COLLECTIVES


def _where(member: Member, running_in: Mapping[int, str]) -> str:
    stop = member.stop
    if stop is None:
        return running_in.get(member.number) or "running"
    found = exception_of(stop.body)
    return f"at {stop.place or UNKNOWN}{f' ({found.name})' if found else ''}"


def names_of(members: Iterable[Member]) -> str:
    """Return the names of members, such as `ranks 0-2, 5`; for child processes, each name or only their number."""
    found = list(members)
    ranks = sorted(member.name.rank for member in found if member.name.is_rank and member.name.rank is not None)
    texts = [member.name.label for member in found if not member.name.is_rank or member.name.rank is None]
    if len(children := [member for member in found if member.name.child is not None]) > MAX_CHILDREN:
        texts = [member.name.label for member in found if not (member.name.is_rank or member in children)]
        texts.append(f"{len(children)} child processes")
    if ranks:
        texts.insert(0, f"rank{'s' if len(ranks) > 1 else ''} {format_ranges(ranks).replace(',', ', ')}")
    return ", ".join(texts)
