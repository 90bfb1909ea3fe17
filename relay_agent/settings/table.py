"""Every setting of a debug run, once: what it is called in each place, how its text is read, and its default.

    a job's command line      --debug-wait 10m           relay_agent.settings.arguments
    `relay-agent run`         --debug-wait 10m           relay_agent.cli.run; --wait is an alias
    the environment           RELAY_DEBUG_WAIT=10m       relay_agent.settings.environment

All three hand their texts to `read_settings`, so a text means the same wherever it is written. An empty text is absent:
a pipeline passes an input that has no value as "". The page docs/reference/settings.md is made from this table.

Credentials are the table `relay_core.access_settings.ACCESS_OPTIONS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from relay_agent.settings.model import DEFAULT_HOLD, DEFAULT_PORT, DEFAULT_TIMEOUTS, DEFAULT_WAIT
from relay_core.errors import UsageError
from relay_core.values import named, parse_duration, parse_flag, parse_port

__all__ = ["MAX_TIMEOUTS", "SETTINGS", "Setting", "read_settings"]

MAX_TIMEOUTS = 20 * 24 * 3600.0
"""Seconds; torch passes timeouts to poll(2), which counts milliseconds in an int: 24 days at most."""


class Setting(NamedTuple):
    """One row of the table."""

    field: str
    """Of `DebugSettings`."""
    option: str
    """Of a job's command line and of `relay-agent run`."""
    variable: str
    metavar: str
    parse: Callable[[str], object]
    default: str
    """As users would write it; "" if the setting is off unless it is given."""
    help: str
    alias: str | None = None
    """Older, shorter name of the option; of `relay-agent run` only, since a job may have an option of that name."""
    bare: str | None = None
    """What the option means without a value; None if it needs one."""

    @property
    def is_flag(self) -> bool:
        """Whether it is either on or off."""
        return self.parse is parse_flag

    @property
    def is_list(self) -> bool:
        """Whether the option may be repeated."""
        return self.parse is parse_ports

    @property
    def destination(self) -> str:
        """The option's name in a parser's result."""
        return self.option[2:].replace("-", "_")


def read_settings(texts: Mapping[str, str | None], name_of: Callable[[Setting], str]) -> dict[str, Any]:
    """Return the values of the settings that are given.

    Args:
        texts: By field; one that is missing, None or empty is absent.
        name_of: What to call a setting in an error: the option or the variable that it came from.

    Raises:
        UsageError: a text is invalid.
    """
    found: dict[str, Any] = {}
    for setting in SETTINGS:
        text = (texts.get(setting.field) or "").strip()
        if text:
            with named(name_of(setting)):
                found[setting.field] = setting.parse(text)
    return found


def parse_ports(text: str) -> tuple[int, ...]:
    """Return the ports of a list, such as "6006,8888"."""
    return tuple(parse_port(part.strip()) for part in text.split(",") if part.strip())


def _parse_ranks(text: str) -> str:
    from relay_agent.settings.rank_selection import parse_ranks  # noqa: PLC0415 - in debug runs only

    return str(parse_ranks(text))


def _parse_policy(text: str) -> bool:
    """Return whether the process exits when no debugger attached in time."""
    if text.lower() not in {"continue", "abort"}:
        raise UsageError(f"neither continue nor abort: '{text}'", hint="use continue or abort")
    return text.lower() == "abort"


def _parse_timeouts(text: str) -> float | None:
    """Return seconds that poll(2) can count; None for a pipeline's placeholder "none", and for 0."""
    return None if text.lower() == "none" else min(parse_duration(text), MAX_TIMEOUTS) or None


SETTINGS = (
    Setting(
        "port", "--debug-port", "RELAY_DEBUG_PORT", "PORT", parse_port, f"{DEFAULT_PORT}",
        "logical port of rank 0, as in your launch.json; rank n has n more", alias="--port",
    ),
    Setting(
        "ranks", "--debug-ranks", "RELAY_DEBUG_RANKS", "LIST", _parse_ranks, "0",
        "ranks that wait for a debugger: 0,3-5, all, master or none",
    ),
    Setting(
        "wait", "--debug-wait", "RELAY_DEBUG_WAIT", "TIME", parse_duration, f"{DEFAULT_WAIT:g}",
        "how long to wait for a debugger, as in 90, 90s, 10m or 2h; 0 does not wait", alias="--wait",
    ),
    Setting(
        "abort_on_timeout", "--debug-on-timeout", "RELAY_DEBUG_ON_TIMEOUT", "POLICY", _parse_policy, "continue",
        "what to do when no debugger attached in time: continue or abort", alias="--on-timeout",
    ),
    Setting(
        "on_crash", "--debug-on-crash", "RELAY_DEBUG_ON_CRASH", "FLAG", parse_flag, "false",
        "hold a process at its first uncaught exception", bare="true",
    ),
    Setting(
        "hold", "--debug-hold", "RELAY_DEBUG_HOLD", "TIME", parse_duration, f"{DEFAULT_HOLD / 60:g}m",
        "how long to hold a process after an uncaught exception", alias="--hold",
    ),
    Setting(
        "timeouts", "--debug-timeouts", "RELAY_DEBUG_TIMEOUTS", "TIME", _parse_timeouts, "",
        "raise the timeouts of torch.distributed, NCCL, gloo, DeepSpeed and Horovod; "
        f"{DEFAULT_TIMEOUTS / 3600:g}h without a value, at most {MAX_TIMEOUTS / 3600:g}h",
        bare=f"{DEFAULT_TIMEOUTS:g}",
    ),
    Setting(
        "forwards", "--debug-forward", "RELAY_DEBUG_FORWARD", "LIST", parse_ports, "",
        "further ports of this machine that clients may reach, as in 6006,8888; repeatable", alias="--forward",
    ),
    Setting(
        "follow_children", "--debug-follow-children", "RELAY_DEBUG_FOLLOW_CHILDREN", "FLAG", parse_flag, "false",
        "offer child processes to the debugger too", alias="--follow-children", bare="true",
    ),
)  # fmt: skip
"""In the order of `--help`."""
