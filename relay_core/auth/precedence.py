"""Sources of a setting, and the choice among them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Source", "choose", "in_order"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Source(Generic[T_co]):
    """A possible source of a value."""

    name: str
    """Name known to the user: an option, a variable, a file or a service."""
    finding: str
    """Short description of what the source contains, without secrets; determined without network access."""
    read: Callable[[], Awaitable[T_co]] | None = None
    """Reads the value and may raise RelayDebugError; None if the source is not present."""
    explicit: bool = False
    """True if the command line or the call selects it."""


def in_order(sources: Sequence[Source[T]]) -> list[Source[T]]:
    """Return the sources by precedence: explicit ones first."""
    return sorted(sources, key=lambda source: not source.explicit)


def choose(sources: Sequence[Source[T]]) -> Source[T] | None:
    """Return the source with the highest precedence that is present, or None."""
    return next((source for source in in_order(sources) if source.read is not None), None)
