"""Brings all ranks to the same call of a changed function, in rounds; sans-IO.

A rank may be ahead of others: by one call if each of its collective operations waits for the others, and by any number
of calls if it only starts the operations, as with NCCL. Ranks that know how many collective operations they have begun
are therefore compared: those that are behind continue until they have begun as many as the one that is ahead, while the
others are held. They can, because nothing that they wait for is missing. `relay_client.push.rounds` determines whether
ranks with equal counts are at the same step.

Ranks without such counts cannot be compared. A held rank may then be one call ahead of other ranks, which wait for it
in a collective and cannot arrive. After a round that has not brought all ranks to the same call, the held ranks
therefore continue to their next call, and the next round takes twice as long.

While a rank is held, the job stands. All rounds together hold a rank for no longer than a twelfth of the time limit.

Rejected: to take ranks that are held at the same function for ranks at the same step. With NCCL, or with
`async_op=True`, a collective operation does not block its caller, and ranks got new code up to 43 steps apart. Also
rejected: to hold ranks for as long as it takes. The other ranks of a held one wait in an operation that has a time
limit of its own, and would end the job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from relay_core.agent_api.members import Member
from relay_core.agent_api.push import Pushed, State
from relay_core.grouping import by_key

# Determines which ranks are at the same step, from how many collective operations they have begun; sans-IO.
#
# Equal counts of a group alone do not prove it: a step may have no operation of the group, for example while gradients
# are accumulated. But ranks that are held at their first call since they began the same operation are at the same step:
#
#     rank    operations of the group at the calls of a changed function
#     0       41      42 held         first call since it began the 42nd operation
#     1       41 41   42 held         first call since it began the 42nd operation: at the same step as rank 0
#     2       41      42 42 held      second call since then: perhaps one step ahead
#
# Ranks that are in no common group can be compared through a rank that is in a group with each of them.
#
# Rejected: equal counts as proof, which was used first. While gradients are accumulated, ranks with equal counts are
# several steps apart, and stages of a pipeline may share no group that counts. Also rejected: to read the counts from
# the flight recorder, which took 50 ms at each call; torch's own numbers are read in microseconds.

RARE = 20
"""A group with so many times fewer operations than another one of the same rank was perhaps only used at the start."""


def highest_counts(results: Sequence[Pushed], goal: Mapping[str, int]) -> dict[str, int]:
    """Return the highest count above 0 of each process group, at least `goal`; {} if a rank has no counts."""
    if not all(result.counts for result in results):
        return {}
    highest = Counter(goal)
    for result in results:
        highest |= Counter(result.counts)
    return highest


def is_behind(result: Pushed, targets: Mapping[str, int]) -> bool:
    """Return whether a rank has begun fewer operations of one of its groups."""
    return any(number < targets.get(name, 0) for name, number in result.counts.items())


def at_same_step(held: Sequence[Pushed]) -> tuple[tuple[Member, ...], ...]:
    """Return the ranks that are known to be at the same step, in groups; a rank that is alone cannot be compared."""
    groups = _Groups(held)
    for name, holders in _holders(held).items():
        if len({result.counts[name] for result in holders}) == 1 and all(_is_first(result, name) for result in holders):
            groups.join(holders)
    each = (tuple(sorted(group, key=lambda member: member.port)) for group in groups.found)
    return tuple(sorted(each, key=lambda group: group[0].port))


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


def _is_rare(name: str, holders: Sequence[Pushed]) -> bool:
    return all(RARE * result.counts[name] < max(result.counts.values()) for result in holders)


def _is_first(result: Pushed, name: str) -> bool:
    """Return whether ranks are held at their first call since they began their last operation of a group."""
    return result.before.get(name, result.counts[name]) < result.counts[name]


def _holders(held: Sequence[Pushed]) -> dict[str, list[Pushed]]:
    """Return the results of the members of each group."""
    return by_key((name, result) for result in held for name in result.counts)


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


FIRST_ROUND = 0.5
"""Duration of the first round in seconds; most jobs make several steps in this time."""
SHARE_HELD = 12
"""The time limit divided by the time for which ranks may be held: 5 s of the default of 60 s."""
PROVING = 4
"""The time limit divided by the time for which ranks that are held at the same function continue to a step at which
they can be compared."""
NESTED_AFTER = 5.0
"""Total duration of all rounds in seconds after which calls inside another changed function also count."""


class Rounds:
    """The rounds of one push.

    Args:
        limit: Seconds after which to give up.
    """

    def __init__(self, limit: float) -> None:
        self.place = ""
        """The function at which to hold; "" for any, as long as no round has held all ranks."""
        self.again = False
        """Whether ranks that are held continue to their next call."""
        self.targets: Mapping[str, int] = {}
        """The counts until which ranks continue that have begun fewer collective operations."""
        self.nested = False
        """Whether to also hold a rank inside a call to another changed function; the call to a main loop does not
        return."""
        self.is_aligned = False
        """True if all ranks are held at the same function."""
        self.same_step: tuple[tuple[Member, ...], ...] = ()
        """The ranks that are then known to be at the same step; only one group if all are."""
        self.late: Sequence[Pushed] = ()
        """The ranks that the last round has not held."""
        self.is_stuck = False
        """True if one of them is executing all changed functions, and no loop calls them again."""
        self.failed: Pushed | None = None
        """The first rank that has failed."""
        self.left = limit
        """Seconds after which to give up, if the ranks that are held now stay held."""
        self._left = limit
        self._may_prove = limit / PROVING
        self._goal: Mapping[str, int] = {}
        """The counts that end the operation after which all ranks are to be held."""
        self._may_hold = max(limit / SHARE_HELD, FIRST_ROUND)
        """Seconds for which ranks may still be held."""
        self._elapsed = 0.0
        self._seconds = FIRST_ROUND / 2
        self._counts: list[Mapping[str, int]] = []
        """The counts after the last round."""

    def next(self) -> float | None:
        """Return the length of the next round in seconds, or None if there is none."""
        if self.is_aligned or self.is_stuck or self.failed is not None or min(self._left, self._may_hold) <= 0:
            return None
        self._seconds = min(self._seconds * 2, self._may_hold, max(self._left, FIRST_ROUND))
        return self._seconds

    def received(self, results: Sequence[Pushed], elapsed: float) -> None:
        """Process the results of a round.

        Args:
            results: The results of all ranks, grouped or not.
            elapsed: How long the round took, in seconds.
        """
        self._left -= elapsed
        self._elapsed += elapsed
        self.nested = self._elapsed >= NESTED_AFTER
        self.failed = next((result for result in results if result.state is State.FAILED), None)
        self.late = [result for result in results if result.state is State.RUNNING]
        self.is_stuck = any(result.running and not result.functions for result in self.late)
        held = [result for result in results if result.state is State.HELD]
        places = Counter[str]()
        for result in held:
            places[result.place] += len(result.members)
        if self._elapsed >= self._may_prove:
            self._goal = {}
        self.targets = highest_counts(results, self._goal)
        are_behind = any(is_behind(result, self.targets) for result in held)
        if held and len(held) == len(results):
            self.again = False
            self.place = max(places, key=lambda place: (places[place], place))
            if len(places) == 1 and not are_behind:
                self._arrived(held)
        else:
            counts = [result.counts for result in results]
            is_moving = bool(self.targets) and (are_behind or counts != self._counts)
            self.again = not is_moving
            self._counts = counts
        if held and not self.is_aligned:
            self._may_hold -= elapsed
        self.left = min(self._left, self._may_hold) if held else self._left

    def _arrived(self, held: Sequence[Pushed]) -> None:
        """Process a round that has held all ranks at the same function, none of which is behind."""
        self.same_step = at_same_step(held)
        self._goal = next_counts(held) if len(self.same_step) > 1 and self._elapsed < self._may_prove else {}
        self.targets = {**self.targets, **self._goal}
        self.is_aligned = not self._goal
