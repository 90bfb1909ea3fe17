"""One choice among several sources, made once and shown as it was made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Source", "choose", "in_order"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Source(Generic[T_co]):
    """One place that something may come from."""

    name: str
    """As the user knows it: an option, a variable, a file, a service."""
    finding: str
    """What a first look shows, without a secret and without a network."""
    read: Callable[[], Awaitable[T_co]] | None = None
    """Raises RelayDebugError; None if there is nothing."""
    explicit: bool = False
    """Whether the command line, or the call, names it."""


def in_order(sources: Sequence[Source[T]]) -> list[Source[T]]:
    """Return the sources in the order they are used: what is named explicitly comes first."""
    return sorted(sources, key=lambda source: not source.explicit)


def choose(sources: Sequence[Source[T]]) -> Source[T] | None:
    """Return the one that is used, if any has something."""
    return next((source for source in in_order(sources) if source.read is not None), None)
