"""Tokens for the relay, and the interface of their providers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from relay_core.hyco.address import Endpoint

__all__ = ["Credential", "Token"]


@dataclass(frozen=True)
class Token:
    """A token as it is sent to the relay; `repr()` omits its value."""

    value: str = field(repr=False)
    """A shared access signature or a raw JWT; "" for an anonymous sender."""
    expires_at: float | None
    """Unix seconds; None if it does not expire."""


class Credential(Protocol):
    """A provider of tokens for listening or sending."""

    @property
    def role_grace(self) -> float:
        """Seconds for which a refusal by the relay may be temporary, because a role may be new; 0 for keys."""

    async def token(self, endpoint: Endpoint) -> Token:
        """Return a currently valid token for `endpoint`.

        Raises:
            RelayDebugError: No token is available. The message gives the reason.
        """

    def refused(self) -> None:
        """Record that the relay refused the last token; `token` then returns a new one, if possible."""

    def __repr__(self) -> str:
        """Describe the source of the tokens without secrets."""
