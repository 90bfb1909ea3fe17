"""Groups ranks by the value of an expression, outliers first; sans-IO."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from relay_core.agent_api.evaluation import Value
from relay_core.agent_api.members import Member
from relay_core.ranges import format_ranges

__all__ = ["Reply", "label", "odd_ones_first"]


@dataclass(frozen=True)
class Reply:
    """The response of one agent, or why there is none."""

    host: str
    values: tuple[Value, ...] = ()
    error: str = ""


def odd_ones_first(replies: Iterable[Reply]) -> list[Value]:
    """Return each value once, with the ranks that have it: those without a value first, then the rarest values.

    Where it was evaluated does not count; that of a group is empty if it differs.
    """
    found: dict[object, Value] = {}
    for value in _values(replies):
        key = (value.error, value.is_silent, value.text, value.digest, value.leaves)
        before = found.get(key)
        if before is None:
            found[key] = value
            continue
        place = before.place if before.place == value.place else ""
        found[key] = replace(before, members=(*before.members, *value.members), place=place)
    groups = [replace(value, members=tuple(sorted(value.members, key=_order))) for value in found.values()]
    return sorted(groups, key=lambda value: (not value.error, len(value.members), [_order(m) for m in value.members]))


def label(members: Sequence[Member]) -> str:
    """Return processes as text: `rank 5`, `ranks 0-4,6-7`, or `port 6000` for one without a rank."""
    ranks = [member.rank for member in members if member.rank is not None]
    texts = [f"port {member.port}" for member in members if member.rank is None]
    if ranks:
        texts.insert(0, f"{'rank' if len(ranks) == 1 else 'ranks'} {format_ranges(ranks)}")
    return ", ".join(texts)


def _values(replies: Iterable[Reply]) -> Iterable[Value]:
    for reply in replies:
        if reply.error:
            yield Value(text=reply.host, error=reply.error, is_silent=True)
        yield from reply.values


def _order(member: Member) -> tuple[bool, int, int]:
    return member.rank is None, member.rank or 0, member.port
