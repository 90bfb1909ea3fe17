"""Determines which ranks are at the same step, from how many collective operations they have begun; sans-IO.

Equal counts of a group alone do not prove it: a step may have no operation of the group, for example while gradients
are accumulated. But ranks that are held at their first call since they began the same operation are at the same step:

    rank    operations of the group at the calls of a changed function
    0       41      42 held         first call since it began the 42nd operation
    1       41 41   42 held         first call since it began the 42nd operation: at the same step as rank 0
    2       41      42 42 held      second call since then: perhaps one step ahead

Ranks that are in no common group can be compared through a rank that is in a group with each of them.

Rejected: equal counts as proof, which was used first. While gradients are accumulated, ranks with equal counts are
several steps apart, and stages of a pipeline may share no group that counts. Also rejected: to read the counts from the
flight recorder, which took 50 ms at each call; torch's own numbers are read in microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relay_core.agent_api.members import Member
from relay_core.agent_api.push import Pushed

__all__ = ["at_same_step", "highest_counts", "is_behind", "next_counts"]

RARE = 20
"""A group with so many times fewer operations than another one of the same rank was perhaps only used at the start."""


def highest_counts(results: Sequence[Pushed], goal: Mapping[str, int]) -> dict[str, int]:
    """Return the highest count of each process group, at least `goal`; {} if a rank has no counts, or all are 0."""
    if not all(result.counts for result in results):
        return {}
    highest = dict(goal)
    for result in results:
        for name, number in result.counts.items():
            highest[name] = max(highest.get(name, 0), number)
    return highest if any(highest.values()) else {}


def is_behind(result: Pushed, targets: Mapping[str, int]) -> bool:
    """Return whether a rank has begun fewer operations of one of its groups."""
    return any(number < targets.get(name, 0) for name, number in result.counts.items())


def at_same_step(held: Sequence[Pushed]) -> tuple[tuple[Member, ...], ...]:
    """Return the ranks that are known to be at the same step, in groups; a rank that is alone cannot be compared."""
    groups = _Groups(held)
    for name, holders in _holders(held).items():
        if len({result.counts[name] for result in holders}) == 1 and all(_is_first(result, name) for result in holders):
            groups.join(holders)
    each = (tuple(sorted(group, key=_port)) for group in groups.found)
    return tuple(sorted(each, key=lambda group: _port(group[0])))


def next_counts(held: Sequence[Pushed]) -> dict[str, int]:
    """Return the counts at which more ranks can be compared: one more operation of the groups that connect them.

    Return {} if no groups do, apart from groups that are rarely used.
    """
    highest = highest_counts(held, {})
    holders = {name: found for name, found in _holders(held).items() if highest.get(name)}
    groups, wanted = _Groups(held), {}
    for name in sorted(holders, key=lambda name: (-_size(holders[name]), -highest[name], name)):
        if not _is_rare(name, holders[name]) and groups.join(holders[name]):
            wanted[name] = highest[name] + 1
    return wanted if len(groups.found) < len(at_same_step(held)) else {}


def _port(member: Member) -> int:
    return member.port or 0


def _is_rare(name: str, holders: Sequence[Pushed]) -> bool:
    return all(RARE * result.counts[name] < max(result.counts.values()) for result in holders)


def _is_first(result: Pushed, name: str) -> bool:
    """Return whether ranks are held at their first call since they began their last operation of a group."""
    return result.before.get(name, result.counts[name]) < result.counts[name]


def _holders(held: Sequence[Pushed]) -> dict[str, list[Pushed]]:
    """Return the results of the members of each group."""
    found: dict[str, list[Pushed]] = {}
    for result in held:
        for name in result.counts:
            found.setdefault(name, []).append(result)
    return found


def _size(results: Sequence[Pushed]) -> int:
    return sum(len(result.members) for result in results)


class _Groups:
    """Ranks in groups, which can be joined; at first, each rank is alone."""

    def __init__(self, held: Sequence[Pushed]) -> None:
        self.found: tuple[tuple[Member, ...], ...] = tuple((member,) for result in held for member in result.members)

    def join(self, results: Sequence[Pushed]) -> bool:
        """Make one group of all groups that contain ranks of these results; return whether there were several."""
        wanted = {member for result in results for member in result.members}
        joined = [group for group in self.found if not wanted.isdisjoint(group)]
        others = [group for group in self.found if wanted.isdisjoint(group)]
        self.found = (tuple(member for group in joined for member in group), *others)
        return len(joined) > 1
