"""The tunnel's timers, as the environment sets them.

RELAY_PING_AFTER   seconds of silence before the other side is asked for a sign of life (10)
RELAY_DEAD_AFTER   seconds of silence after which a connection is given up and made anew (25)
RELAY_KEEP         seconds that a lost session is kept: 3 hours on the client; on the agent 30 minutes while a
                   debugger is attached (2 minutes otherwise)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from relay_core.errors import ConfigurationError
from relay_core.tunnel.limits import Settings

__all__ = ["keep_seconds", "tunnel_settings"]

MAX_SECONDS = 24 * 3600.0
"""No session is kept longer than a day: a paused job costs money."""


def tunnel_settings(environ: Mapping[str, str] | None = None, *, grace: float) -> Settings:
    """Return the settings of a tunnel.

    Args:
        environ: Defaults to the environment of this process.
        grace: Seconds a lost session is kept unless `RELAY_KEEP` says otherwise.

    Raises:
        ConfigurationError: a variable is no sensible number of seconds.
    """
    environ = os.environ if environ is None else environ
    defaults = Settings()
    ping_after = _seconds(environ, "RELAY_PING_AFTER", defaults.ping_after)
    dead_after = _seconds(environ, "RELAY_DEAD_AFTER", defaults.dead_after)
    if dead_after <= ping_after:
        raise ConfigurationError(
            f"RELAY_DEAD_AFTER ({dead_after:g}) is not longer than RELAY_PING_AFTER ({ping_after:g})",
            hint="leave time for an answer, e.g. 25 and 10",
        )
    return replace(defaults, ping_after=ping_after, dead_after=dead_after, grace=keep_seconds(environ, default=grace))


def keep_seconds(environ: Mapping[str, str] | None = None, *, default: float) -> float:
    """Return how long a lost session is kept.

    Raises:
        ConfigurationError: `RELAY_KEEP` is no sensible number of seconds.
    """
    return _seconds(os.environ if environ is None else environ, "RELAY_KEEP", default)


def _seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= MAX_SECONDS:
        raise ConfigurationError(
            f"{name} is no number of seconds between 0 and {MAX_SECONDS:g}", hint=f"the default is {default:g}"
        )
    return value
