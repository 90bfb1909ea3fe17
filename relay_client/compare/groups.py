"""Groups ranks by the value of an expression, outliers first; sans-IO."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from relay_core.agent_api.evaluation import Value
from relay_core.agent_api.members import Member
from relay_core.value_parsers import format_ranges

__all__ = ["Reply", "label", "odd_ones_first", "shared_ranks"]


@dataclass(frozen=True)
class Reply:
    """The response of one agent, or the reason why there is none."""

    host: str
    values: tuple[Value, ...] = ()
    error: str = ""


def odd_ones_first(replies: Iterable[Reply]) -> list[Value]:
    """Return each value once, with the ranks that have it: those without a value first, then the rarest values.

    The place of evaluation does not affect the grouping; a group's `place` is empty if its members' places differ.
    """
    found: dict[object, Value] = {}
    for value in _values(replies):
        key = (value.error, value.is_silent, value.text, value.digest, value.leaves)
        before = found.get(key)
        if before is None:
            found[key] = value
            continue
        place = before.place if before.place == value.place else ""
        difference = before.difference or value.difference
        members, starts = (*before.members, *value.members), (*before.starts, *value.starts)
        found[key] = replace(before, members=members, place=place, difference=difference, starts=starts)
    groups = [replace(value, members=tuple(sorted(value.members, key=_order))) for value in found.values()]
    return sorted(groups, key=lambda value: (not value.error, len(value.members), [_order(m) for m in value.members]))


def shared_ranks(groups: Iterable[Value]) -> set[int]:
    """Return the ranks that several processes have; such ranks exist only if several jobs are connected."""
    ports = defaultdict(set)
    for group in groups:
        for member in group.members:
            if member.rank is not None:
                ports[member.rank].add(member.port)
    return {rank for rank, found in ports.items() if len(found) > 1}


def label(members: Sequence[Member], shared: Collection[int] = ()) -> str:
    """Return processes as text: `rank 5`, `ranks 0-4,6-7`, or `port 6000` for a process without a rank.

    Args:
        members: The processes.
        shared: Ranks that occur in several jobs; their ports are added, as in `rank 5 (port 5683)`.
    """
    ranks = {member.rank for member in members if member.rank is not None}
    texts = [f"port {member.port}" for member in members if member.rank is None]
    if ranks:
        text = f"{'rank' if len(ranks) == 1 else 'ranks'} {format_ranges(sorted(ranks))}"
        if not ranks.isdisjoint(shared):
            ports = sorted(member.port for member in members if member.rank is not None)
            text += f" ({'port' if len(ports) == 1 else 'ports'} {format_ranges(ports)})"
        texts.insert(0, text)
    return ", ".join(texts)


def _values(replies: Iterable[Reply]) -> Iterable[Value]:
    for reply in replies:
        if reply.error:
            yield Value(text=reply.host, error=reply.error, is_silent=True)
        yield from reply.values


def _order(member: Member) -> tuple[bool, int, int]:
    return member.rank is None, member.rank or 0, member.port
