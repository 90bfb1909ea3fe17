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

    @property
    def role_grace(self) -> float:
        """Seconds for which a relay's refusal may be temporary: those of a new role, or 0 for keys."""

    async def token(self, endpoint: Endpoint) -> Token:
        """Return a token for `endpoint`.

        Raises:
            RelayDebugError: no token can be had, and why.
        """

    def refused(self) -> None:
        """The relay refused the last token: the next one must be a new one, if there are new ones."""

    def __repr__(self) -> str:
        """Describe where tokens come from, without any secret."""
