"""State machine of a listener's control channel, sans-IO.

                  101 received                   close / time-out / error
    CONNECTING ---------------> LISTENING ------------------------------> WAITING (until retry_at)
        ^  |                                                                 |  |
        |  | permanent error                                                 |  | permanent error
        |  +------------------------------> ENDED <-------------------------+--+
        +---------------------------------------- retry_at reached

Rules:
  * retry delays follow `relay_core.hyco.backoff`, and are prompt while the owner needs the connection;
  * `Unauthorized` (401, 403, close code 1008) is retried once with a new token; a second one without a healthy
    connection in between is permanent;
  * as an exception, an identity whose role may be new is retried for as long as `relay_core.hyco.backoff` allows;
  * `HybridConnectionNotFound` is retried for `NOT_FOUND_GRACE` seconds after the start and is permanent later, because
    Azure takes some time to propagate a new entity (roles: up to 5 minutes);
  * once the relay has answered 101, to this listener or to a predecessor with the same settings, only a repeated
    `Unauthorized` is permanent. The settings are then known to be correct, so an untrusted certificate, an answer that
    is not HTTP, or a full hybrid connection must be caused by a captive portal, a proxy or an outage, and jobs outlast
    those;
  * a token is renewed after 75 % of its remaining lifetime, less up to 10 % of jitter, so that agents that started
    together do not renew together.

Times are monotonic seconds and are passed in by the caller, like the source of random numbers.

Why there are four states and not a loop with counters: whether an error ends the program depends on the past (has this
listener, or a predecessor, ever listened; is the refusal the first one; how old is the role), and that is decided here
in one place, without sockets. The alternatives were tried by other listeners of Azure Relay: Microsoft's for .NET and
Java treat a missing hybrid connection as final at once, so that nobody can debug a job that starts within the seconds
in which a new entity propagates; retrying everything forever hides a mistyped name behind silence. The time limits
decide between them.

What is ugly: the relay confirms no token, and a 401 means expired, not yet propagated, or wrong. So a first refusal is
always answered with a new token, even if it cannot help, and the second one ends the listener even if a third attempt
might have succeeded.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from relay_core.errors import HybridConnectionNotFound, RelayDebugError, Unauthorized
from relay_core.hyco.backoff import Backoff, NewRoleGrace, refused_for_good

NOT_FOUND_GRACE = 30.0
RENEW_AT = 0.75
RENEW_JITTER = 0.10
MIN_RENEW_DELAY = 1.0
"""Seconds; prevents a tight renewal loop when a token is about to expire."""


class ListenerState(enum.Enum):
    """State of the control channel."""

    CONNECTING = "connecting"
    LISTENING = "listening"
    WAITING = "waiting"
    ENDED = "ended"


class ListenerStateMachine:
    """Decides when a listener connects, renews its token and gives up.

    Args:
        now: Monotonic time of the start.
        random: Returns a float in [0, 1).
        role_grace: Seconds for which a refusal by the relay may be temporary; 0 for keys.
        has_listened: Whether a listener with the same settings, which this one replaces, has listened.
    """

    def __init__(
        self, *, now: float, random: Callable[[], float], role_grace: float = 0.0, has_listened: bool = False
    ) -> None:
        self.state = ListenerState.CONNECTING
        self.error: RelayDebugError | None = None
        """The most recent failure; in state ENDED, the permanent error."""
        self.retry_at = now
        """In state WAITING: when to connect again."""
        self.renew_at: float | None = None
        """In state LISTENING: when to send a renewToken message; None for tokens that do not expire."""
        self._random = random
        self._started_at = now
        self._has_listened = has_listened
        self._opened_at: float | None = None
        self._backoff = Backoff(random)
        self._refusals = 0
        self._role_grace = NewRoleGrace(role_grace)

    def dialling(self) -> None:
        """Record that a connection attempt starts."""
        self.state = ListenerState.CONNECTING

    def opened(self, *, now: float, token_lifetime: float | None) -> None:
        """Record that the relay has answered 101.

        Args:
            now: Monotonic seconds.
            token_lifetime: Seconds until the token in use expires; None if it does not.
        """
        # The count of refusals is kept, so that a relay that accepts a token and then closes with 1008 is not retried
        # without limit.
        self.state = ListenerState.LISTENING
        self.error = None
        self._has_listened = True
        self._opened_at = now
        self.renewed(now=now, token_lifetime=token_lifetime)

    def renewed(self, *, now: float, token_lifetime: float | None) -> None:
        """Record that the relay was sent a new token, and schedule the renewal of that token.

        The relay confirms nothing: it does not respond to a valid token, and closes with code 1008 after an invalid
        one.
        """
        if token_lifetime is None:
            self.renew_at = None
            return
        # The jitter only makes the renewal earlier: a later renewal would leave less time for retries.
        share = RENEW_AT - RENEW_JITTER * self._random()
        self.renew_at = now + max(MIN_RENEW_DELAY, token_lifetime * share)

    def failed(self, error: RelayDebugError, *, now: float, needed: bool = False) -> None:
        """Record a failed attempt or the loss of the control channel; the new state is WAITING or ENDED.

        Args:
            error: The reason.
            now: Monotonic seconds.
            needed: Whether somebody is waiting for the connection, so that retries are prompt.
        """
        lived = 0.0 if self._opened_at is None else now - self._opened_at
        if self._backoff.is_healthy(lived):
            self._refusals = 0  # the credential has worked, so the most likely cause is an expired token
            self._role_grace.worked()
        self.error = error
        self.renew_at = self._opened_at = None
        if self._is_permanent(error, now):
            self.state = ListenerState.ENDED
            return
        self.state = ListenerState.WAITING
        self.retry_at = now + self._backoff.next_delay(lived=lived, prompt=needed and error.allows_prompt_retry)
        # The last attempt is made exactly at the end of the grace period, not after a delay that exceeds it.
        if self.refused_until is not None:
            self.retry_at = min(self.retry_at, self.refused_until)

    def ended(self) -> None:
        """Record that the owner has closed the listener."""
        self.state = ListenerState.ENDED

    @property
    def refused_until(self) -> float | None:
        """Time at which retries with a refused identity end; None if the last failure had another cause."""
        refused = self.error is not None and self._role_grace.concerns(self.error)
        return self._role_grace.until if refused else None

    @property
    def is_replacing_token(self) -> bool:
        """Whether the relay refused a token that may have expired; the next attempt uses a new token."""
        return self.state is ListenerState.WAITING and isinstance(self.error, Unauthorized) and not self.refused_until

    def _is_permanent(self, error: RelayDebugError, now: float) -> bool:
        if self._role_grace.concerns(error):
            if self._role_grace.allows_retry(now=now):
                return False
            self.error = refused_for_good(error)
            return True
        if isinstance(error, Unauthorized):
            self._refusals += 1
            return self._refusals > 1  # the first may be a token that expired, or was renewed too late
        # The settings were correct once, so any other error is an outage that may end.
        if self._has_listened:
            return False
        if isinstance(error, HybridConnectionNotFound):
            return now - self._started_at >= NOT_FOUND_GRACE
        return not error.retryable
