"""Checks: runs them in order, each with a time limit, keeps their results, and examines configuration and token."""

from __future__ import annotations

import enum
import logging
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from relay_core.access_settings import CA_FILE_VARIABLE, AccessSettings, Side
from relay_core.auth import Access, EntraCredential, find_access
from relay_core.auth.entra import LONGEST_VALIDITY
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import RelayDebugError, TimedOut, Unauthorized
from relay_core.foreign import escape_controls
from relay_core.net.relay_tls import client_tls
from relay_core.net.tasks import frames_of

logger = logging.getLogger(__name__)


# Runs checks in order, each with a time limit, and keeps their results.
#
# A check returns what it found or raises an exception: `Skipped` if it does not apply here, or, if it failed, a
# RelayDebugError, whose sentence, hint and exit code are the result. A check whose prerequisite did not pass is
# skipped, so one fault causes only one failure.

LIMIT = 15.0
"""Seconds for one check; its connections have time-outs of 10 s, whose errors are more precise."""


class Status(enum.Enum):
    """Outcome of a check."""

    PASSED = "pass"
    FAILED = "fail"
    SKIPPED = "skipped"


class Skipped(Exception):
    """A check does not apply here; its text is the reason."""


@dataclass(frozen=True)
class Result:
    """The result of one check."""

    check: str
    status: Status
    finding: str
    hint: str = ""
    """What to do next, for a failed check."""
    exit_code: int = 0
    """The exit code for a failed check; see `relay_core.errors`."""
    seconds: float | None = None
    """Duration; None if the check did not run."""

    def encode(self) -> dict[str, object]:
        """Return the result for `--json`."""
        seconds = None if self.seconds is None else round(self.seconds, 3)
        return {**vars(self), "status": self.status.value, "hint": self.hint or None, "seconds": seconds}


class Examination:
    """The results of checks so far."""

    def __init__(self) -> None:
        self.results: list[Result] = []
        self._blocked: set[str] = set()
        """Checks that failed, and those that did not run because of them."""

    @property
    def exit_code(self) -> int:
        """The exit code of the first failed check; 0 if none has failed."""
        return next((result.exit_code for result in self.results if result.status is Status.FAILED), 0)

    async def check(
        self, name: str, run: Callable[[], Awaitable[str]], *, after: Sequence[str] = (), limit: float = LIMIT
    ) -> None:
        """Run a check and keep its result.

        Args:
            name: Name of the check for users.
            run: Returns what was found, or raises.
            after: Checks that must not have failed.
            limit: Seconds for the check.
        """
        if blocker := next((each for each in after if each in self._blocked), None):
            self._blocked.add(name)
            self.results.append(Result(name, Status.SKIPPED, f"needs '{blocker}'"))
            return
        started = time.monotonic()
        result = await self._outcome(name, run, limit)
        if result.status is Status.FAILED:
            self._blocked.add(name)
        seconds = None if result.status is Status.SKIPPED else time.monotonic() - started
        self.results.append(replace(result, seconds=seconds))

    async def _outcome(self, name: str, run: Callable[[], Awaitable[str]], limit: float) -> Result:
        try:
            async with timeout(limit):
                return Result(name, Status.PASSED, await run())
        except Skipped as reason:
            return Result(name, Status.SKIPPED, str(reason))
        except RelayDebugError as error:
            return _failure(name, error)
        except TIMEOUT_ERRORS:
            return _failure(name, TimedOut(f"no result within {limit:g} s", hint="check the network and retry"))
        except Exception as error:  # noqa: BLE001 - the other checks must still run; the text may contain a secret
            logger.debug("unexpected error in the check '%s': %s", name, frames_of(error))
            return _failure(
                name,
                RelayDebugError(f"unexpected {type(error).__name__}", hint="use --verbose to log where it occurred"),
            )


def _failure(name: str, error: RelayDebugError) -> Result:
    return Result(name, Status.FAILED, error.sentence, error.hint, error.exit_code)


# The results of checks as text and as JSON.

COLUMNS = ("check", "result", "time", "finding")


def as_text(results: Sequence[Result]) -> str:
    """Return a table with aligned columns; the hint of a failure follows below its row."""
    rows = [COLUMNS, *((each.check, each.status.value, _duration(each.seconds), each.finding) for each in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS) - 1)]
    indent = " " * (sum(widths) + 2 * len(widths))
    lines = []
    for row, result in zip(rows, (None, *results), strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append("  ".join([*cells, escape_controls(row[-1])]).rstrip())
        if result is not None and result.hint and result.status is Status.FAILED:
            lines.append(f"{indent}-> {escape_controls(result.hint)}")
    return "\n".join(lines)


def as_json(results: Sequence[Result], exit_code: int) -> dict[str, object]:
    """Return the results and the exit code for `--json`."""
    return {"exit_code": exit_code, "checks": [each.encode() for each in results]}


def _duration(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


# Checks of configuration and token.

AUTHORITIES, CONFIGURATION, TOKEN = "CA file", "configuration", "token"
CONFIGURATION_LIMIT = 40.0
"""Time limit in seconds for the configuration: Key Vault and Entra ID have 10 s each, both for the connection string
and for the tunnel key."""
TOKEN_LIMIT = 20.0
"""Time limit in seconds for the token: Entra ID has 10 s."""


class AccessChecks:
    """Checks which hybrid connection and credential are configured, and whether there is a valid token.

    Args:
        settings: Explicit settings; environment variables are used for the others.
        side: Selects the Entra identities.
    """

    def __init__(self, settings: AccessSettings, side: Side) -> None:
        self.tls: ssl.SSLContext | None = None
        """Set if the CA file is usable."""
        self.access: Access | None = None
        """Set if a configuration was found."""
        self._settings = settings
        self._side: Side = side

    async def run(self, examination: Examination) -> None:
        """Check the CA file and, if it is usable, the configuration."""
        await examination.check(AUTHORITIES, self._load_authorities)
        await examination.check(CONFIGURATION, self._find_access, after=[AUTHORITIES], limit=CONFIGURATION_LIMIT)

    async def _load_authorities(self) -> str:
        self.tls = client_tls(self._settings.ca_file)
        file = self._settings.ca_file or os.environ.get(CA_FILE_VARIABLE)
        return f"the system's certificate authorities and {file}" if file else "the system's certificate authorities"

    async def _find_access(self) -> str:
        self.access = await find_access(self._settings, side=self._side, tls=self.tls)
        key = "with" if self.access.tunnel_key else "without"
        return f"{self.access.endpoint}, from {self.access.source}, {key} a tunnel key"


async def check_token(access: Access, skew: float) -> str:
    """Return the kind of the token and how long it is valid.

    Args:
        access: Has the credential.
        skew: Seconds by which the relay's clock is ahead of this machine's.

    Raises:
        Unauthorized: The token has expired.
        RelayDebugError: No token is available.
    """
    credential = access.credential
    token = await credential.token(access.endpoint)
    what = "; ".join(credential.source.tried) if isinstance(credential, EntraCredential) else str(credential)
    if token.expires_at is None:
        return f"{what}, which does not expire"
    left = token.expires_at - time.time() - skew
    if left <= 0:
        raise Unauthorized(
            f"the token expired {_span(-left)} ago ({what})",
            hint="create a new one, or use a connection string with a key; also check this machine's clock",
        )
    is_plausible = left <= LONGEST_VALIDITY or not isinstance(credential, EntraCredential)
    return f"{what}, valid for {_span(left)}" if is_plausible else what


def _span(seconds: float) -> str:
    hours = seconds / 3600
    return f"{seconds / 60:.0f} min" if hours < 2 else f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} days"
