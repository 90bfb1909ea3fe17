"""All errors that users can see, as one shallow tree of exceptions.

An error has one sentence (what failed, on which side, and why) and one hint (what to do next). The class determines the
exit code of the command line programs and whether a retry can succeed. Messages must not contain keys, tokens or
connection strings.

    RelayDebugError                 1   anything not listed below
    ├── UsageError                  2   wrong command line (argparse uses 2 as well)
    ├── ConfigurationError          3   invalid connection string, file, secret or environment; no identity available
    ├── Unauthorized                4   the relay, Key Vault or Entra ID refused the key, token or identity (401, 403)
    ├── HybridConnectionNotFound    5   the namespace has no such hybrid connection (404)
    ├── RelayUnreachable            6   name, network, proxy, time-out, or the relay answered 5xx / 429
    ├── UntrustedCertificate        7   the TLS certificate of the relay or of Key Vault is not trusted
    ├── LocalPortInUse              8   a local port in `--ports` is in use
    ├── NoListener                  9   no listener on the hybrid connection (404)
    ├── Rejected                   10   the listener refused (any status), or did not answer in time (408, 504)
    ├── TooManyListeners           11   25 listeners are connected already
    ├── ConnectionLost             12   an established connection closed unexpectedly
    ├── ProtocolError              13   the peer violated the protocol
    ├── TimedOut                   14   an awaited event did not happen in time
    ├── NoClient                   15   no matching relay-client is running
    ├── NoValue                    17   no rank can report a value
    ├── NothingToRelease           18   no debugger of the relay-client holds the rank
    └── Interrupted                130  Ctrl-C came too late to cancel a request

The codes of outcomes that are not errors are in `relay_core.exit_codes`.
"""

from __future__ import annotations

from typing import ClassVar

from relay_core.exit_codes import INTERRUPTED, NO_VALUE

MAX_SENTENCE = 1000
"""Characters of an error's sentence, which may quote a name of any length; without that, none has half as many."""


class RelayDebugError(Exception):
    """A failure with a message for users.

    Args:
        sentence: What failed and why, without a full stop and without secrets.
        hint: What to do next, or "".
        reason_to_wait: What is shown while somebody waits and tries again, without parts that change between attempts;
            by default, the sentence.
        costly: Whether an attempt that fails with this error causes work for the relay, so that retries must be
            infrequent.
        elsewhere: Whether the answer is probably not the relay's, but for example a captive portal's. It may end at any
            moment, and attempts cause no work for the relay.
    """

    exit_code: ClassVar[int] = 1
    """The exit status of a program that ends with this error."""
    retryable: ClassVar[bool] = False
    """True if the same call may succeed later without any change."""

    def __init__(
        self, sentence: str, *, hint: str = "", reason_to_wait: str = "", costly: bool = False, elsewhere: bool = False
    ) -> None:
        if len(sentence) > MAX_SENTENCE:
            sentence = f"{sentence[: MAX_SENTENCE // 2]}...{sentence[-MAX_SENTENCE // 2 :]}"
        super().__init__(sentence)
        self.sentence = sentence
        self.hint = hint
        self.reason_to_wait = reason_to_wait or sentence
        self.costly = costly
        self.elsewhere = elsewhere

    @property
    def allows_prompt_retry(self) -> bool:
        """Whether retries may be less than a second apart while somebody is waiting for the connection."""
        return self.elsewhere or (self.retryable and not self.costly)

    def __str__(self) -> str:
        return f"{self.sentence}. hint: {self.hint}" if self.hint else self.sentence


class UsageError(RelayDebugError):
    """The command line or an argument is invalid."""

    exit_code = 2


class ConfigurationError(RelayDebugError):
    """A connection string, a file or an environment variable is missing or malformed."""

    exit_code = 3


class Unauthorized(RelayDebugError):
    """The relay, Key Vault or Entra ID refused the key, token or identity.

    Args:
        status: HTTP status of the relay's answer (401, 403); None if the answer is not from the relay.
    """

    exit_code = 4

    def __init__(self, sentence: str, *, hint: str = "", status: int | None = None) -> None:
        super().__init__(sentence, hint=hint)
        self.status = status


class HybridConnectionNotFound(RelayDebugError):
    """The namespace has no hybrid connection of this name."""

    exit_code = 5


class RelayUnreachable(RelayDebugError):
    """The relay cannot be reached or is temporarily unavailable."""

    exit_code = 6
    retryable = True


class UntrustedCertificate(RelayDebugError):
    """The relay's TLS certificate is not trusted."""

    exit_code = 7


class LocalPortInUse(RelayDebugError):
    """A local port is in use by another program."""

    exit_code = 8


class NoListener(RelayDebugError):
    """The hybrid connection exists but has no (suitable) listener."""

    exit_code = 9
    retryable = True


class Rejected(RelayDebugError):
    """The listener refused the connection, or did not answer within the relay's limit.

    Args:
        status: HTTP status from the listener (100-999), or 408 / 504 from the relay.
        reason: The reason phrase, or "".
    """

    exit_code = 10

    def __init__(self, sentence: str, *, hint: str = "", status: int, reason: str, elsewhere: bool = False) -> None:
        super().__init__(sentence, hint=hint, elsewhere=elsewhere)
        self.status = status
        self.reason = reason


class TooManyListeners(RelayDebugError):
    """The hybrid connection has as many listeners as the relay allows (25 in Azure)."""

    exit_code = 11


class ConnectionLost(RelayDebugError):
    """An established connection closed unexpectedly, or no data was received in time.

    Args:
        code: WebSocket close code; 1000 after an orderly close, 1006 if no Close frame was received.
        reason: Text of the Close frame, or "".
        closed_here: Whether this side has closed the connection because the peer violated the protocol or a limit, or
            did not answer; `code` and `reason` are then its own.
    """

    exit_code = 12
    retryable = True

    def __init__(
        self, sentence: str, *, hint: str = "", code: int = 1006, reason: str = "", closed_here: bool = False
    ) -> None:
        super().__init__(sentence, hint=hint)
        self.code = code
        self.reason = reason
        self.closed_here = closed_here

    @property
    def is_orderly(self) -> bool:
        """Whether one side has closed the connection on purpose."""
        return self.code == 1000


class ProtocolError(RelayDebugError):
    """The peer violated the protocol."""

    exit_code = 13


class TimedOut(RelayDebugError):
    """An awaited event, such as the start of ranks or a debugger's attachment, did not happen in time."""

    exit_code = 14


class NoClient(RelayDebugError):
    """No relay-client of this user is running, or none that matches."""

    exit_code = 15


class NoValue(RelayDebugError):
    """No rank can report a value of the expression."""

    exit_code = NO_VALUE


class NothingToRelease(RelayDebugError):
    """No debugger holds the rank, or another user's does."""

    exit_code = 18


class Interrupted(RelayDebugError):
    """A request was cancelled, but it was too late, or it is unknown whether it was."""

    exit_code = INTERRUPTED
