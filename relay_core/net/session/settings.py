"""The settings of a tunnel that environment variables change: its timers, and the limit on sessions.

    RELAY_PING_AFTER  time without data after which the peer is pinged (default: 10s)
    RELAY_DEAD_AFTER  time without data after which a connection is dropped and replaced (default: 25s)
    RELAY_KEEP        how long a session without a connection is kept (default: 3h on the client; on the agent 30m while
                      a debugger is attached, 2m otherwise)

Each is a duration of at most a day, such as 90, 90s or 10m; RELAY_DEAD_AFTER must be longer than RELAY_PING_AFTER.

    RELAY_MAX_SESSIONS   how many clients an agent serves, including those that have lost their connection (default: 32)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from relay_core.errors import ConfigurationError, UsageError
from relay_core.tunnel.limits import Settings
from relay_core.value_parsers import parse_duration

MAX_SECONDS = 24 * 3600.0
"""No duration is longer than a day; a session is not kept longer, because a paused job still costs money."""
MAX_DIGITS = 4
"""Maximum number of digits of the limit on sessions."""


def tunnel_settings(environ: Mapping[str, str] | None = None, *, grace: float) -> Settings:
    """Return the default settings of a tunnel, changed by the environment variables.

    Args:
        environ: Defaults to the environment of this process.
        grace: Seconds that a session without a connection is kept if `RELAY_KEEP` is not set.

    Raises:
        ConfigurationError: a variable is not a duration of at most a day or not a valid number of sessions, or
            RELAY_DEAD_AFTER is not longer than RELAY_PING_AFTER.
    """
    environ = os.environ if environ is None else environ
    defaults = Settings()
    ping_after = _seconds(environ, "RELAY_PING_AFTER", defaults.ping_after)
    dead_after = _seconds(environ, "RELAY_DEAD_AFTER", defaults.dead_after)
    if dead_after <= ping_after:
        raise ConfigurationError(
            f"RELAY_DEAD_AFTER ({dead_after:g}) must be longer than RELAY_PING_AFTER ({ping_after:g})",
            hint="leave enough time for a response, for example RELAY_DEAD_AFTER=25 and RELAY_PING_AFTER=10",
        )
    return replace(
        defaults,
        ping_after=ping_after,
        dead_after=dead_after,
        grace=keep_seconds(environ, default=grace),
        max_sessions=_max_sessions(environ, defaults.max_sessions),
    )


def keep_seconds(environ: Mapping[str, str] | None = None, *, default: float) -> float:
    """Return how many seconds a session without a connection is kept.

    Raises:
        ConfigurationError: `RELAY_KEEP` is not a duration of at most a day.
    """
    return _seconds(os.environ if environ is None else environ, "RELAY_KEEP", default)


def _max_sessions(environ: Mapping[str, str], default: int) -> int:
    text = environ.get("RELAY_MAX_SESSIONS", "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS and int(text)):
        raise ConfigurationError(
            f"RELAY_MAX_SESSIONS: invalid number of sessions: '{text}'",
            hint=f"use a number from 1 to {10**MAX_DIGITS - 1}; the default is {default}",
        )
    return int(text)


def _seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name, "").strip()
    if not text:
        return default
    try:
        value = parse_duration(text)
    except UsageError:
        value = 0.0
    if not 0 < value <= MAX_SECONDS:
        raise ConfigurationError(
            f"{name}: invalid duration: '{text}'",
            hint=f"use a duration such as 90, 90s or 10m, above 0 and at most {MAX_SECONDS / 3600:g}h; the default is "
            f"{default:g}",
        )
    return value
