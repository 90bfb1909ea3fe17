"""Every error a user can meet, as one shallow tree.

An error is one sentence (what failed, on which side, and why) and one hint (what to do next). The class
decides the exit code of the command line programs and whether trying again can help. Nothing here, and no
text handed to these classes, may contain a key, a token or a connection string.

    RelayDebugError                 1   anything not listed below
    ├── UsageError                  2   wrong command line (argparse uses 2 as well)
    ├── ConfigurationError          3   connection string, file, secret or environment is unusable; no identity to ask
    ├── Unauthorized                4   the relay, Key Vault or Entra ID refused the key, token or identity (401, 403)
    ├── HybridConnectionNotFound    5   the namespace has no such hybrid connection (404)
    ├── RelayUnreachable            6   name, network, proxy, time-out, or a relay that answers 5xx / 429
    ├── UntrustedCertificate        7   the TLS certificate of the relay or of Key Vault is not trusted
    ├── LocalPortInUse              8   a local port of `--ports` is taken
    ├── NoListener                  9   nobody listens on the hybrid connection (404)
    ├── Rejected                   10   the listener said no (any status), or did not answer in time (408, 504)
    ├── TooManyListeners           11   25 listeners are connected already
    ├── ConnectionLost             12   an established connection ended without a goodbye
    ├── ProtocolError              13   the peer sent something the protocol does not allow
    └── TimedOut                   14   what was waited for did not come in time

Exit code 0 is success and a stop on request (Ctrl-C, SIGTERM); 130 is a second Ctrl-C.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "ConfigurationError",
    "ConnectionLost",
    "HybridConnectionNotFound",
    "LocalPortInUse",
    "NoListener",
    "ProtocolError",
    "Rejected",
    "RelayDebugError",
    "RelayUnreachable",
    "TimedOut",
    "TooManyListeners",
    "Unauthorized",
    "UntrustedCertificate",
    "UsageError",
]


class RelayDebugError(Exception):
    """A failure that a user can read and act on.

    Args:
        sentence: What failed and why, without a full stop and without secrets.
        hint: The next thing to do; empty if there is none.
    """

    exit_code: ClassVar[int] = 1
    """The exit status of a program that ends with this error."""
    retryable: ClassVar[bool] = False
    """Whether the same call may succeed later without anybody changing anything."""

    def __init__(self, sentence: str, *, hint: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.sentence}. hint: {self.hint}" if self.hint else self.sentence


class UsageError(RelayDebugError):
    """The command line or an argument makes no sense."""

    exit_code = 2


class ConfigurationError(RelayDebugError):
    """A connection string, a file or an environment variable is missing or malformed."""

    exit_code = 3


class Unauthorized(RelayDebugError):
    """The relay, Key Vault or Entra ID refused the key, token or identity.

    Args:
        status: HTTP status of the relay's answer (401, 403); None if it was not the relay that answered.
    """

    exit_code = 4

    def __init__(self, sentence: str, *, hint: str = "", status: int | None = None) -> None:
        super().__init__(sentence, hint=hint)
        self.status = status


class HybridConnectionNotFound(RelayDebugError):
    """The namespace answers, but has no hybrid connection of this name."""

    exit_code = 5


class RelayUnreachable(RelayDebugError):
    """The relay cannot be reached, or answers that it is not able to serve now."""

    exit_code = 6
    retryable = True


class UntrustedCertificate(RelayDebugError):
    """The relay's TLS certificate does not verify."""

    exit_code = 7


class LocalPortInUse(RelayDebugError):
    """Another program holds a local port."""

    exit_code = 8


class NoListener(RelayDebugError):
    """The hybrid connection exists and nobody (suitable) listens on it."""

    exit_code = 9
    retryable = True


class Rejected(RelayDebugError):
    """The listener refused the connection, or did not answer within the relay's limit.

    Args:
        status: HTTP status the listener chose (100-999), or 408 / 504 from the relay.
        reason: Its text, or "" if there was none.
    """

    exit_code = 10

    def __init__(self, sentence: str, *, hint: str = "", status: int, reason: str) -> None:
        super().__init__(sentence, hint=hint)
        self.status = status
        self.reason = reason


class TooManyListeners(RelayDebugError):
    """The hybrid connection has as many listeners as the relay allows (25 in Azure)."""

    exit_code = 11


class ConnectionLost(RelayDebugError):
    """An established websocket ended without the peer's consent, or went silent.

    Args:
        code: WebSocket close code; 1006 when there was no close frame.
        reason: Text of the close frame, or "".
    """

    exit_code = 12
    retryable = True

    def __init__(self, sentence: str, *, hint: str = "", code: int = 1006, reason: str = "") -> None:
        super().__init__(sentence, hint=hint)
        self.code = code
        self.reason = reason


class ProtocolError(RelayDebugError):
    """The peer broke the protocol."""

    exit_code = 13


class TimedOut(RelayDebugError):
    """What was waited for did not come in time: ranks, or a debugger."""

    exit_code = 14
