"""What proves to the relay that somebody may listen or send: the token, and the seam that provides it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from relay_core.hyco.address import Endpoint

__all__ = ["Credential", "Token"]


@dataclass(frozen=True)
class Token:
    """A token as it goes over the wire; `repr()` hides it."""

    value: str = field(repr=False)
    """A shared access signature or a raw JWT; "" for an anonymous sender."""
    expires_at: float | None
    """Unix seconds, or None if it does not expire."""


class Credential(Protocol):
    """Provides tokens, fresh enough to be used at once."""

    async def token(self, endpoint: Endpoint) -> Token:
        """Return a token for `endpoint`.

        Raises:
            RelayDebugError: no token can be had, and why.
        """

    def __repr__(self) -> str:
        """Describe where tokens come from, without any secret."""
