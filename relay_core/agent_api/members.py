"""The processes that a request is for, and those that share one result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from relay_core.agent_api.values import count, items, port
from relay_core.ranges import parse_ranges

__all__ = ["Member", "grouped", "parse_members", "selects_rank"]


@dataclass(frozen=True)
class Member:
    """A process that has a result."""

    port: int
    rank: int | None = None

    def encode(self) -> list[int | None]:
        """Return one element of `members`."""
        return [self.port] if self.rank is None else [self.port, self.rank]

    @classmethod
    def parse(cls, value: object) -> Member | None:
        """Read one element of `members`; None without a port."""
        number, rank = [*items(value)[:2], None, None][:2]
        found = port(number)
        return None if found is None else cls(found, count(rank))


class _Result(Protocol):
    """A frozen dataclass."""

    @property
    def members(self) -> tuple[Member, ...]: ...


ResultType = TypeVar("ResultType", bound=_Result)


def parse_members(value: object) -> tuple[Member, ...]:
    """Read `members`; elements without a port are left out."""
    found = (Member.parse(element) for element in items(value))
    return tuple(member for member in found if member is not None)


def grouped(results: Iterable[ResultType]) -> tuple[ResultType, ...]:
    """Return equal results once, with the members of all, in the order of the first ones."""
    members: dict[ResultType, tuple[Member, ...]] = {}
    for result in results:
        key = replace(result, members=())  # type: ignore[type-var] # a protocol cannot require a dataclass
        members[key] = (*members.get(key, ()), *result.members)
    return tuple(replace(result, members=found) for result, found in members.items())  # type: ignore[type-var] # as above


def selects_rank(ranks: str, rank: int | None) -> bool:
    """Return whether a list such as `0,3-5`, or `all`, contains a rank.

    Raises:
        UsageError: the list is invalid.
    """
    if ranks == "all":
        return True
    found = parse_ranges(ranks, what="list of ranks", example="3, 0-7 or 0,3-5")
    return rank is not None and any(rank in part for part in found)
