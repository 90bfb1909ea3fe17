"""The life of a listener's control channel as a state machine without I/O.

                 dialled, 101                    close / silence / error
    CONNECTING ---------------> LISTENING ------------------------------> WAITING (until retry_at)
        ^  |                                                                 |  |
        |  | permanent error                                                 |  | permanent error
        |  +------------------------------> ENDED <-------------------------+--+
        +---------------------------------------- retry_at is reached

The rules it owns:
  * delays are those of `relay_core.hyco.backoff`;
  * an `Unauthorized` (401, 403, close 1008) is forgiven once, so that a fresh token can be tried, and forgiven
    again only after a healthy spell; a second one in a row is permanent;
  * except that an identity whose role may be new is retried for as long as `relay_core.hyco.new_role` allows;
  * `HybridConnectionNotFound` is forgiven for `NOT_FOUND_GRACE` seconds after the start, because entities and
    roles take a while to spread (Azure: up to 5 minutes for roles, seconds for entities); afterwards permanent;
  * a token is renewed after 75 % of its remaining life, less up to 10 % jitter, so that a fleet of agents that
    started together does not renew together.

Time is monotonic seconds, handed in; chance is a function that returns a float in [0, 1).
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from relay_core.errors import HybridConnectionNotFound, RelayDebugError, Unauthorized
from relay_core.hyco.backoff import Backoff
from relay_core.hyco.new_role import NewRoleGrace, refused_for_good

__all__ = ["ListenerState", "ListenerStateMachine"]

NOT_FOUND_GRACE = 30.0
RENEW_AT = 0.75
RENEW_JITTER = 0.10
MIN_RENEW_DELAY = 1.0
"""Seconds; keeps a token that is about to expire from causing a renewal loop."""


class ListenerState(enum.Enum):
    """Where the control channel stands."""

    CONNECTING = "connecting"
    LISTENING = "listening"
    WAITING = "waiting"
    ENDED = "ended"


class ListenerStateMachine:
    """Decides when a listener dials, renews and gives up.

    Args:
        now: Monotonic seconds of the start.
        random: Returns a float in [0, 1).
        role_grace: Seconds for which a refusal by the relay may be temporary; 0 for keys.
    """

    def __init__(self, *, now: float, random: Callable[[], float], role_grace: float = 0.0) -> None:
        self.state = ListenerState.CONNECTING
        self.error: RelayDebugError | None = None
        """The last failure, or the final one in state ENDED."""
        self.retry_at = now
        """When to dial again, in state WAITING."""
        self.renew_at: float | None = None
        """When to send a renewToken, in state LISTENING; None for tokens that do not expire."""
        self._random = random
        self._started_at = now
        self._opened_at: float | None = None
        self._backoff = Backoff(random)
        self._refusals = 0
        self._new_role = NewRoleGrace(role_grace)

    def __repr__(self) -> str:
        return f"<ListenerStateMachine {self.state.value} failures={self._backoff.failures}>"

    def dialling(self) -> None:
        """A connection attempt begins."""
        self.state = ListenerState.CONNECTING

    def opened(self, *, now: float, token_lifetime: float | None) -> None:
        """The relay answered 101.

        Args:
            now: Monotonic seconds.
            token_lifetime: Seconds until the token that was used expires, or None for never.
        """
        self.state = ListenerState.LISTENING
        self.error = None
        self._opened_at = now
        self._schedule_renewal(now, token_lifetime)

    def renewed(self, *, now: float, token_lifetime: float | None) -> None:
        """A renewToken message was sent; a good one gets no answer, a bad one a close with 1008."""
        self._schedule_renewal(now, token_lifetime)

    def failed(self, error: RelayDebugError, *, now: float) -> None:
        """An attempt failed or the control channel ended; afterwards the state is WAITING or ENDED."""
        lived = 0.0 if self._opened_at is None else now - self._opened_at
        if self._backoff.is_healthy(lived):
            self._refusals = 0
            self._new_role.worked()
        self.error = error
        self.renew_at = self._opened_at = None
        if self._is_permanent(error, now):
            self.state = ListenerState.ENDED
            return
        self.state = ListenerState.WAITING
        self.retry_at = now + self._backoff.next_delay(lived=lived)
        if self.refused_until is not None:
            self.retry_at = min(self.retry_at, self.refused_until)

    def ended(self) -> None:
        """The owner closed the listener."""
        self.state = ListenerState.ENDED

    @property
    def refused_until(self) -> float | None:
        """When the last attempt of a refused identity is due, in state WAITING; None if the last failure is another."""
        refused = self.error is not None and self._new_role.concerns(self.error)
        return self._new_role.until if refused else None

    def _is_permanent(self, error: RelayDebugError, now: float) -> bool:
        if self._new_role.concerns(error):
            return self._is_refused_for_good(error, now)
        if isinstance(error, Unauthorized):
            self._refusals += 1
            return self._refusals > 1
        if isinstance(error, HybridConnectionNotFound):
            return now - self._started_at >= NOT_FOUND_GRACE
        return not error.retryable

    def _is_refused_for_good(self, error: RelayDebugError, now: float) -> bool:
        if self._new_role.allows_retry(now=now):
            return False
        self.error = refused_for_good(error)
        return True

    def _schedule_renewal(self, now: float, token_lifetime: float | None) -> None:
        if token_lifetime is None:
            self.renew_at = None
            return
        share = RENEW_AT - RENEW_JITTER * self._random()
        self.renew_at = now + max(MIN_RENEW_DELAY, token_lifetime * share)
