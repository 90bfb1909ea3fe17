"""The processes that a request is for, and those that share one result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, TypeVar

from relay_core.records import Port
from relay_core.value_parsers import parse_ranges


@dataclass(frozen=True)
class Member:
    """A process that has a result."""

    is_array: ClassVar = True
    port: Port
    rank: int | None = None


class _Result(Protocol):
    """A frozen dataclass."""

    @property
    def members(self) -> tuple[Member, ...]: ...


ResultType = TypeVar("ResultType", bound=_Result)


def with_members(result: ResultType, members: tuple[Member, ...], **fields: object) -> ResultType:
    """Return a result with these members, and with these fields."""
    return replace(result, members=members, **fields)  # type: ignore[type-var] # a protocol cannot require a dataclass


def grouped(results: Iterable[ResultType]) -> tuple[ResultType, ...]:
    """Return equal results once, with the members of all of them, in the order in which each result first occurs."""
    members: dict[ResultType, tuple[Member, ...]] = {}
    for result in results:
        key = with_members(result, ())
        members[key] = (*members.get(key, ()), *result.members)
    return tuple(with_members(result, found) for result, found in members.items())


def describe_ranks(ranks: str) -> str:
    """Return a list of ranks as in `selects_rank` for a log line: `all ranks`, `rank 3` or `ranks 0,3-5`."""
    if ranks == "all":
        return "all ranks"
    return f"rank {ranks}" if ranks.isdecimal() else f"ranks {ranks}"


def selects_port(ports: str, port: int) -> bool:
    """Return whether a list such as `5678,5690-5693` contains a logical port; an empty list contains all.

    Raises:
        UsageError: the list is invalid.
    """
    if not ports:
        return True
    return any(
        port in part for part in parse_ranges(ports, what="list of ports", example="5678, 5678-5680 or 5678,5690")
    )


def selects_rank(ranks: str, rank: int | None) -> bool:
    """Return whether a list such as `0,3-5`, or `all`, contains a rank.

    Raises:
        UsageError: the list is invalid.
    """
    if ranks == "all":
        return True
    found = parse_ranges(ranks, what="list of ranks", example="3, 0-7 or 0,3-5")
    return rank is not None and any(rank in part for part in found)
