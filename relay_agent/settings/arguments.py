"""The debugging arguments of a job's command line.

    --is-debug [TEXT]                             debug this run; bare, "true", "1", "yes" and "on" mean yes
    --debug-relay-connection-name NAME            hybrid connection
    --debug-port PORT                             the port your launch.json names (default 5678)
    --debug-relay-connection-string-secret NAME   Key Vault secret that holds the connection string
    --debug-wait SECONDS                          how long to wait for a debugger (default 600; 0: do not wait)
    --debug-ranks LIST                            ranks that wait: "0" (default), "0,3-5", "all", "master", "none"
    --debug-on-timeout TEXT                       when nobody came: "continue" (default) or "abort"
    --debug-on-crash [TEXT]                       hold the process at its first uncaught exception
    --debug-hold TIME                             for how long, e.g. 30m (default), 90, 2h
    --debug-timeouts [SECONDS]                    raise the watchdogs of collective communication (default: a day)
    --debug-forward LIST                          further ports that clients may reach, e.g. 6006,8888
    --debug-follow-children [TEXT]                offer child processes to the debugger too

Pipelines hand every value over as text, so "False", "none" and "" are ordinary values here. The arguments share the
command line with the job's own: nothing in this module exits, prints or removes anything from it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from relay_agent.settings.model import DEFAULT_HOLD, DEFAULT_PORT, DEFAULT_TIMEOUTS, DEFAULT_WAIT, DebugSettings
from relay_core.errors import UsageError

__all__ = ["add_debug_arguments", "parse_duration", "parse_step_arguments"]

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off", "none", ""})
_UNITS = {"s": 1, "m": 60, "h": 3600}


def add_debug_arguments(parser: argparse.ArgumentParser) -> None:
    """Let a parser that refuses unknown arguments accept the debugging arguments.

    `start_remote_debugging_from_args` reads them by itself. In the parser's result the flags are bool and the others
    are text.
    """
    _add_arguments(parser, flag=_is_true)


def parse_step_arguments(argv: Sequence[str] | None = None) -> DebugSettings | None:
    """Return what `argv` (default: `sys.argv[1:]`) says about debugging, whatever else it holds; None for "not now".

    Values other than `--is-debug` are looked at in a debug run only: they cannot hurt another one.

    Raises:
        UsageError: a value cannot be understood.
    """
    parser = _QuietParser(add_help=False, allow_abbrev=False)
    _add_arguments(parser, flag=str)
    found = parser.parse_known_args(sys.argv[1:] if argv is None else list(argv))[0]
    if not _flag("--is-debug", found.is_debug):
        return None
    from relay_agent.settings.rank_selection import parse_ranks  # noqa: PLC0415 - in debug runs only

    access = {
        "hc": _name(found.debug_relay_connection_name),
        "connection_string_secret": _name(found.debug_relay_connection_string_secret),
    }
    return DebugSettings(
        access={name: value for name, value in access.items() if value is not None},
        port=_port("--debug-port", found.debug_port),
        ranks=str(parse_ranks(found.debug_ranks)),
        wait=_seconds("--debug-wait", found.debug_wait),
        abort_on_timeout=_policy(found.debug_on_timeout),
        on_crash=_flag("--debug-on-crash", found.debug_on_crash),
        hold=parse_duration("--debug-hold", found.debug_hold),
        timeouts=_timeouts(found.debug_timeouts),
        forwards=tuple(_port("--debug-forward", part) for part in found.debug_forward.split(",") if part.strip()),
        follow_children=_flag("--debug-follow-children", found.debug_follow_children),
    )


class _QuietParser(argparse.ArgumentParser):
    """A parser that raises where argparse prints the usage and ends the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"the debugging arguments cannot be read: {message}")


def _add_arguments(parser: argparse.ArgumentParser, *, flag: Callable[[str], object]) -> None:
    """Define the options; every value is optional text, so that argparse itself finds nothing to refuse."""
    group = parser.add_argument_group("remote debugging")

    def add(option: str, metavar: str, text: str, default: str, bare: str = "") -> None:
        group.add_argument(option, nargs="?", const=bare, default=default, metavar=metavar, help=text)

    def add_flag(option: str, text: str) -> None:
        group.add_argument(
            option, nargs="?", const=flag("true"), default="false", type=flag, metavar="TEXT",
            help=f'{text}: "true", "1", "yes", "on" or no value at all',
        )  # fmt: skip

    add_flag("--is-debug", "debug this run")
    add("--debug-relay-connection-name", "NAME", "Azure Relay hybrid connection", "")
    add("--debug-port", "PORT", "port in your launch.json (default %(default)s); rank n has n more", str(DEFAULT_PORT))
    add("--debug-relay-connection-string-secret", "NAME", "Key Vault secret with the connection string", "")
    add("--debug-wait", "SECONDS", "how long to wait for a debugger (default %(default)s)", f"{DEFAULT_WAIT:g}")
    add("--debug-ranks", "LIST", "ranks that wait: 0,3-5, all, master or none (default %(default)s)", "0")
    add("--debug-on-timeout", "TEXT", "when nobody came: continue (default) or abort", "continue")
    add_flag("--debug-on-crash", "hold the process at its first uncaught exception")
    add("--debug-hold", "TIME", "for how long, e.g. 30m, 90 or 2h (default %(default)s)", f"{DEFAULT_HOLD / 60:g}m")
    add(
        "--debug-timeouts", "SECONDS", "raise the watchdogs of collective communication (bare: to a day)", "",
        bare=f"{DEFAULT_TIMEOUTS:g}",
    )  # fmt: skip
    add("--debug-forward", "LIST", "further ports that clients may reach, e.g. 6006,8888", "")
    add_flag("--debug-follow-children", "offer child processes to the debugger too")


def _is_true(text: str) -> bool:
    return text.strip().lower() in _TRUE


def _flag(option: str, text: str) -> bool:
    """Read a text flag, in which "False" is false."""
    if not _is_true(text) and text.strip().lower() not in _FALSE:
        raise UsageError(f"{option} '{text}' is neither true nor false", hint=f"say {option} true")
    return _is_true(text)


def _name(text: str) -> str | None:
    name = text.strip()
    return None if name.lower() in {"", "none"} else name


def _port(option: str, text: str) -> int:
    if not (text.isascii() and text.strip().isdecimal() and 1 <= int(text) <= 65535):
        raise UsageError(f"{option} '{text}' is not a port", hint="use a number from 1 to 65535, such as 5678")
    return int(text)


def _seconds(option: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise UsageError(f"{option} '{text}' is not a number of seconds", hint="use 0 or more, such as 600")
    return seconds


def parse_duration(option: str, text: str) -> float:
    """Return seconds; `90`, `90s`, `30m` and `2h` are durations.

    Raises:
        UsageError: it is none.
    """
    text = text.strip()
    factor = _UNITS.get(text[-1:], 0)
    return _seconds(option, text[:-1]) * factor if factor else _seconds(option, text)


def _timeouts(text: str) -> float | None:
    return parse_duration("--debug-timeouts", text) if _name(text) else None


def _policy(text: str) -> bool:
    if text.strip().lower() not in {"continue", "abort"}:
        raise UsageError(f"--debug-on-timeout '{text}' is neither continue nor abort", hint="leave it out to continue")
    return text.strip().lower() == "abort"
