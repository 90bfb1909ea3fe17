"""How long a relay's 401 or 403 may be temporary: a role of Entra ID takes effect some minutes after it was assigned.

            refused                     refused, and `until` is reached
    IDLE ------------> RETRYING -----------------------------------------> the refusal is permanent
     ^                     |
     +------ works --------+

Keys and signatures have no such delay; what refuses them does so for good. Time is monotonic seconds, handed in.
"""

from __future__ import annotations

from relay_core.errors import RelayDebugError, Unauthorized

__all__ = ["ROLE_PROPAGATION", "NewRoleGrace", "refused_for_good", "refused_for_now"]

ROLE_PROPAGATION = 300.0
"""Seconds until a new role assignment takes effect: "up to five minutes" according to Microsoft's page
"Authenticate and authorize an application with Microsoft Entra ID to access Azure Relay entities"."""


class NewRoleGrace:
    """Decides whether a refused identity is tried again.

    Args:
        seconds: How long after the first refusal; 0 for credentials without roles.
    """

    def __init__(self, seconds: float) -> None:
        self.until: float | None = None
        """When the last attempt is due; None while the identity is not refused."""
        self._seconds = seconds

    def __repr__(self) -> str:
        return f"<NewRoleGrace {self._seconds:g} s {'idle' if self.until is None else 'retrying'}>"

    def concerns(self, error: RelayDebugError) -> bool:
        """Return True if `error` is the relay's refusal of an identity whose role may be new."""
        return self._seconds > 0 and isinstance(error, Unauthorized) and error.status in {401, 403}

    def allows_retry(self, *, now: float) -> bool:
        """Return True if the request that was just refused is worth repeating."""
        if self.until is None:
            self.until = now + self._seconds
        return now < self.until

    def worked(self) -> None:
        """The identity was accepted: the next refusal is the first one."""
        self.until = None


def refused_for_now(error: RelayDebugError, until: str) -> Unauthorized:
    """Return what the user reads while the request is retried; `until` is a time of day."""
    return Unauthorized(
        error.sentence,
        hint=f"a new role assignment takes up to 5 minutes; retrying until {until}",
        status=_status(error),
    )


def refused_for_good(error: RelayDebugError) -> Unauthorized:
    """Return the error that ends the retries."""
    return Unauthorized(
        f"{error.sentence}; still so after 5 minutes, in which a new role takes effect",
        hint=error.hint,
        status=_status(error),
    )


def _status(error: RelayDebugError) -> int | None:
    return error.status if isinstance(error, Unauthorized) else None
