"""Table of all settings of a debug run: names, parser and default of each.

    a job's command line      --debug-wait 10m           relay_agent.settings.arguments
    `relay-agent run`         --debug-wait 10m           relay_agent.cli.run; --wait is an alias
    the environment           RELAY_DEBUG_WAIT=10m       relay_agent.settings.environment
    a call in the job         wait="10m"                 relay_agent.start_remote_debugging

All four use `read_settings`, so a value has the same meaning in each. An empty value counts as absent, because a
pipeline passes "" for an input without a value. docs/reference/settings.md is generated from this table.

The settings for credentials are in the table `relay_core.access_settings.ACCESS_OPTIONS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from relay_agent.settings import model
from relay_core.errors import UsageError
from relay_core.value_parsers import is_port_text, named, parse_duration, parse_flag, parse_port, read_flag

MIN_MONITOR = 0.5
"""Minimum interval in seconds; each sample takes the agent a few milliseconds."""
HELD = "held"
"""The value of `--debug-timeouts` for timeouts that are raised only while a rank is held."""
MAX_TIMEOUTS = 20 * 24 * 3600.0
"""Maximum timeout in seconds: torch passes timeouts to poll(2) as milliseconds in an int, which holds at most 24
days."""


class Setting(NamedTuple):
    """One row of the table."""

    field: str
    """Name of the field of `DebugSettings`."""
    option: str
    """Option of a job's command line and of `relay-agent run`."""
    variable: str
    metavar: str
    parse: Callable[[str], object]
    default: str
    """The default as users would write it; "" if the setting is off by default."""
    help: str
    alias: str | None = None
    """Older, shorter name for the option, for `relay-agent run` only: a job may have its own option of that name."""
    bare: str | None = None
    """The value if the option is given without one; None if it requires one."""
    is_flag: bool = False
    """Whether the setting is a boolean that is off by default; the option then needs no value."""
    is_list: bool = False
    """Whether the option may be repeated, or have values that are separated by commas."""

    @property
    def parameter(self) -> str:
        """The name of the parameter of `relay_agent.start_remote_debugging`."""
        name = self.option.removeprefix("--").replace("-", "_")
        return name if name in {"debug_port", "debug_ranks"} else name.removeprefix("debug_")

    @property
    def destination(self) -> str:
        """The name of the option's attribute in a parser's result."""
        return self.option[2:].replace("-", "_")


def read_settings(texts: Mapping[str, str | None], name_of: Callable[[Setting], str]) -> dict[str, Any]:
    """Parse the settings that have a value, and return them by field.

    Args:
        texts: The values as text, by field; missing, None and empty ones are skipped.
        name_of: Returns the name of a setting for error messages: its option or its variable.

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


def as_text(value: object) -> str:
    """Return a value of Python as text for `read_settings`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


def parse_ports(text: str) -> tuple[int, ...]:
    """Return the ports in a list, such as "6006,8888"."""
    return tuple(parse_port(part.strip()) for part in text.split(",") if part.strip())


def _parse_directories(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _parse_policy(text: str) -> bool:
    """Return True for "abort": the process exits if no debugger attaches in time."""
    if text.lower() not in {"continue", "abort"}:
        raise UsageError(f"invalid action: '{text}'", hint="use continue or abort")
    return text.lower() == "abort"


def _parse_timeouts(text: str) -> float | None:
    """Return seconds, limited to MAX_TIMEOUTS; 0 for "off", and None for "held" and the placeholder "none"."""
    if text.lower() in {HELD, "none"}:
        return None
    return 0.0 if read_flag(text) is False else min(parse_duration(text), MAX_TIMEOUTS)


def _parse_interval(text: str) -> float | None:
    """Return seconds, at least `MIN_MONITOR`; None for 0 and for "none", which pipelines pass as a placeholder."""
    interval = 0.0 if text.lower() == "none" else parse_duration(text)
    return max(interval, MIN_MONITOR) if interval else None


def _parse_address(text: str) -> tuple[str, int] | None:
    """Return the host (by default 127.0.0.1) and port in `PORT` or `HOST:PORT`; None for the placeholder "none"."""
    if text.lower() == "none":
        return None
    host, _, port = text.rpartition(":") if ":" in text else ("127.0.0.1", "", text)
    if not host or not is_port_text(port):
        raise UsageError(f"invalid address: '{text}'", hint="use PORT or HOST:PORT, such as 9464 or 0.0.0.0:9464")
    return host.strip("[]"), int(port)


SETTINGS = (
    Setting(
        "port", "--debug-port", "RELAY_DEBUG_PORT", "PORT", parse_port, f"{model.DEFAULT_PORT}",
        "logical port of rank 0, as in your launch.json; rank n has this port plus n", alias="--port",
    ),
    Setting(
        "ranks", "--debug-ranks", "RELAY_DEBUG_RANKS", "LIST", model.parse_ranks, "0",
        "ranks that wait for a debugger: a list such as 0,3-5, or all, master or none",
    ),
    Setting(
        "wait", "--debug-wait", "RELAY_DEBUG_WAIT", "TIME", parse_duration, f"{model.DEFAULT_WAIT:g}",
        "time to wait for a debugger, such as 90, 90s, 10m or 2h; 0 disables waiting", alias="--wait",
    ),
    Setting(
        "abort_on_timeout", "--debug-on-timeout", "RELAY_DEBUG_ON_TIMEOUT", "POLICY", _parse_policy, "continue",
        "what to do if no debugger attaches in time: continue or abort", alias="--on-timeout",
    ),
    Setting(
        "on_crash", "--debug-on-crash", "RELAY_DEBUG_ON_CRASH", "FLAG", parse_flag, "false",
        "hold a process at its first uncaught exception", bare="true", is_flag=True,
    ),
    Setting(
        "hold", "--debug-hold", "RELAY_DEBUG_HOLD", "TIME", parse_duration, f"{model.DEFAULT_HOLD / 60:g}m",
        "wait at a crash or at breakpoint()", alias="--hold",
    ),
    Setting(
        "timeouts", "--debug-timeouts", "RELAY_DEBUG_TIMEOUTS", "TIME", _parse_timeouts, HELD,
        "minimum timeout of collective operations; off; or held: 24h while a rank is held",
        bare=f"{model.DEFAULT_TIMEOUTS:g}",
    ),
    Setting(
        "forwards", "--debug-forward", "RELAY_DEBUG_FORWARD", "LIST", parse_ports, "",
        "additional ports on this machine that clients can connect to, such as 6006,8888; repeatable",
        alias="--forward", is_list=True,
    ),
    Setting(
        "event_directories", "--debug-tensorboard", "RELAY_DEBUG_TENSORBOARD", "LIST", _parse_directories, "",
        "serve the TensorBoard event files in these directories", is_list=True,
    ),
    Setting(
        "monitor", "--debug-monitor", "RELAY_DEBUG_MONITOR", "TIME", _parse_interval, "",
        f"record CPU, memory and GPU usage at this interval (without TIME, {model.DEFAULT_MONITOR:g}s)",
        bare=f"{model.DEFAULT_MONITOR:g}s",
    ),
    Setting(
        "metrics", "--debug-metrics", "RELAY_DEBUG_METRICS", "[HOST:]PORT", _parse_address, "",
        "serve the --debug-monitor samples to Prometheus",
    ),
    Setting(
        "follow_children", "--debug-follow-children", "RELAY_DEBUG_FOLLOW_CHILDREN", "FLAG", parse_flag, "false",
        "offer child processes to the debugger too", alias="--follow-children", bare="true", is_flag=True,
    ),
    Setting(
        "values", "--debug-values", "RELAY_DEBUG_VALUES", "SWITCH", parse_flag, "on",
        "show arrays and tables by type and shape",
        bare="on",
    ),
    Setting(
        "allow_edit", "--debug-allow-edit", "RELAY_DEBUG_ALLOW_EDIT", "FLAG", parse_flag, "false",
        "allow 'relay-client push' to replace running code", bare="true", is_flag=True,
    ),
)  # fmt: skip
"""All settings, in the order in which `--help` lists them."""
