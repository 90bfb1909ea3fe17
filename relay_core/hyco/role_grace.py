"""Retries after a 401 or 403, because a new role assignment in Azure takes some minutes to take effect.

            refused                     refused, and `until` is reached
    IDLE ------------> RETRYING -----------------------------------------> the refusal is permanent
     ^                     |
     +----- accepted ------+

Keys and signatures take effect immediately, so their refusal is permanent. Times are monotonic seconds, passed in by
the caller.
"""

from __future__ import annotations

from relay_core.errors import RelayDebugError, Unauthorized

__all__ = ["ROLE_PROPAGATION", "NewRoleGrace", "refused_for_good", "refused_for_now"]

ROLE_PROPAGATION = 300.0
"""Seconds until a new role assignment takes effect: "up to five minutes" according to Microsoft's page
"Authenticate and authorize an application with Microsoft Entra ID to access Azure Relay entities"."""


class NewRoleGrace:
    """Decides whether a request with a refused identity is retried.

    Args:
        seconds: Time for retries after the first refusal; 0 for credentials without roles.
    """

    def __init__(self, seconds: float) -> None:
        self.until: float | None = None
        """Time of the last attempt; None while the identity is not refused."""
        self._seconds = seconds

    def __repr__(self) -> str:
        return f"<NewRoleGrace {self._seconds:g} s {'idle' if self.until is None else 'retrying'}>"

    def concerns(self, error: RelayDebugError) -> bool:
        """Return True if `error` is the relay's refusal of an identity whose role may be new."""
        # Without a status, Entra ID or Key Vault refused the request, which a new role at the relay cannot change.
        return self._seconds > 0 and isinstance(error, Unauthorized) and error.status in {401, 403}

    def allows_retry(self, *, now: float) -> bool:
        """Return True if the request that was just refused should be retried."""
        # The period starts at the first refusal and not at the start of the program: `worked` ends it, and a later
        # refusal starts a new one.
        if self.until is None:
            self.until = now + self._seconds
        return now < self.until

    def worked(self) -> None:
        """Record that the identity was accepted; the next refusal starts a new period."""
        self.until = None


def refused_for_now(error: RelayDebugError, until: str) -> Unauthorized:
    """Return the error to report while the request is retried.

    Args:
        error: The relay's refusal.
        until: Time of day at which retries end.
    """
    return Unauthorized(
        error.sentence,
        hint=f"a new role assignment takes up to 5 minutes to take effect; retrying until {until}",
        status=_status(error),
    )


def refused_for_good(error: RelayDebugError) -> Unauthorized:
    """Return the error to raise when the retries have ended."""
    return Unauthorized(
        f"{error.sentence}; still refused after 5 minutes, by which time a new role should have taken effect",
        hint=error.hint,
        status=_status(error),
    )


def _status(error: RelayDebugError) -> int | None:
    return error.status if isinstance(error, Unauthorized) else None
