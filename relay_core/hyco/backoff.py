"""Delays between reconnection attempts, and for how long a refusal of a new Azure role is retried."""

from __future__ import annotations

from collections.abc import Callable

from relay_core.errors import RelayDebugError, Unauthorized

# Delays between reconnection attempts, with jitter.
#
# The first retry is immediate. The delays before the next ones depend on whether anybody is waiting for the connection:
#
#     prompt    below 0.2, 0.3, 0.3 ... seconds, at least half of that each time; for 240 attempts, about a minute
#     calm      a random time below 0.2, 0.4, 0.8 ... 15 seconds
#
# Prompt delays apply if somebody is waiting for the connection and a failed attempt costs the relay nothing, such as a
# refused TCP connection. A connection that lasted 30 seconds resets both sequences.
#
# Why two sequences: a doubling delay alone reaches 15 s during an outage of half a minute, and then a developer who
# steps waits up to 15 s after the relay is back (measured with outages of 1, 3 and 10 s: 6.8 s, 7.0 s and 10.3 s at the
# median, against 0.3 to 0.4 s now; docs/benchmarks.md). Prompt delays alone would let every idle agent and client try
# four times a second for the hours of a real outage. So the prompt ones are limited three times: to somebody who waits,
# to failures that cost the relay nothing, and in number and rate (`PROMPT_ATTEMPTS`, `AttemptBudget`).
#
# Why half a ceiling at least: full jitter is best for many clients that must not return together, but it makes single
# delays near 0, and prompt attempts are limited in number.

FIRST_CEILING = 0.2
CAP = 15.0
PROMPT_CAP = 0.3
"""A client can reconnect only after its agent, so the two together need up to twice this time. With Azure's delays, the
handshakes take another 0.8 s, and a step must continue within 1.5 s."""
PROMPT_ATTEMPTS = 240
"""Maximum number of consecutive prompt delays, about a minute in total. A longer outage is not expected to end within
seconds."""
HEALTHY_AFTER = 30.0
"""Seconds after which a connection counts as healthy. A shorter one does not reset the delays, because a relay that
accepts and immediately drops connections would be flooded with retries."""
BUDGET_RATE = 10.0
"""Prompt attempts per second by one program to one address: enough for two connections."""
BUDGET_BURST = 24.0


class Backoff:
    """The retry delays of one connection.

    Args:
        random: Returns a float in [0, 1).
    """

    def __init__(self, random: Callable[[], float]) -> None:
        self.failures = 0
        """Consecutive failures since the last healthy connection."""
        self._prompt = 0
        """How many of these failures were followed by a prompt delay. Such failures do not lengthen the calm delays."""
        self._random = random

    def is_healthy(self, lived: float) -> bool:
        """Return True if a connection that lasted `lived` seconds counts as healthy."""
        return lived >= HEALTHY_AFTER

    def reset(self) -> None:
        """Restart the sequence of delays."""
        self.failures = self._prompt = 0

    def next_delay(self, *, lived: float = 0.0, prompt: bool = False) -> float:
        """Return the seconds to wait after a failure.

        Args:
            lived: Seconds that the connection was up before it failed; 0 if it was never established.
            prompt: Whether somebody is waiting for the connection and failures are cheap; has no effect after
                `PROMPT_ATTEMPTS` prompt delays.
        """
        if self.is_healthy(lived):
            self.reset()
        self.failures += 1
        if self.failures == 1:
            return 0.0  # most losses are one-off, such as the relay's daily recycling of listeners
        if prompt and self._prompt < PROMPT_ATTEMPTS:
            self._prompt += 1
            # Between half and all of the ceiling: delays near 0 would use up the attempts before the outage is over.
            return min(PROMPT_CAP, _ceiling(self._prompt)) * (1.0 + self._random()) / 2
        # At least half the first ceiling: full jitter alone can return delays near 0 several times in a row.
        return max(FIRST_CEILING / 2, min(CAP, _ceiling(self.failures - 1 - self._prompt)) * self._random())


class AttemptBudget:
    """A token bucket that limits the prompt attempts of one program's connections to one address.

    A connection without a token waits for a calm delay. That is enough, because the first connection to succeed makes
    the others connect at once.

    Args:
        rate: Tokens per second.
        burst: Maximum number of tokens.
    """

    def __init__(self, *, rate: float = BUDGET_RATE, burst: float = BUDGET_BURST) -> None:
        self._rate = rate
        self._burst = self._tokens = burst
        self._counted_at: float | None = None

    def take(self, now: float) -> bool:
        """Take a token for one attempt; return False if none is left.

        Args:
            now: Monotonic seconds.
        """
        # Tokens are added when they are needed, so the bucket requires no timer.
        since = 0.0 if self._counted_at is None else now - self._counted_at
        self._counted_at = now
        self._tokens = min(self._burst, self._tokens + since * self._rate)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


def _ceiling(number: int) -> float:
    return FIRST_CEILING * 2.0 ** min(number - 1, 16)  # 16: far above the caps, and no overflow


# Retries after a 401 or 403, because a new role assignment in Azure takes some minutes to take effect.
#
#             refused                     refused, and `until` is reached
#     IDLE ------------> RETRYING -----------------------------------------> the refusal is permanent
#      ^                     |
#      +----- accepted ------+
#
# Keys and signatures take effect immediately, so their refusal is permanent. Times are monotonic seconds, passed in by
# the caller.

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
        status=getattr(error, "status", None),
    )


def refused_for_good(error: RelayDebugError) -> Unauthorized:
    """Return the error to raise when the retries have ended."""
    return Unauthorized(
        f"{error.sentence}; still refused after 5 minutes, by which time a new role should have taken effect",
        hint=error.hint,
        status=getattr(error, "status", None),
    )
