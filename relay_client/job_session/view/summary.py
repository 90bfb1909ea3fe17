"""Where all ranks are, in one line: `ranks 0-2, 5-7 at train.py:41; rank 3 in all_reduce; rank 4 running`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from relay_client.job_session.members import Member
from relay_core.ranges import format_ranges

__all__ = ["UNKNOWN", "names_of", "summary"]

UNKNOWN = "an unknown place"
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
    return "; ".join(f"{names_of(found)} {where}" for where, found in groups.items())


def _where(member: Member, running_in: Mapping[int, str]) -> str:
    stop = member.stop
    if stop is None:
        return running_in.get(member.number) or "running"
    what = f" ({stop.body.get('text') or 'exception'})" if stop.body.get("reason") == "exception" else ""
    return f"at {stop.place or UNKNOWN}{what}"


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
