"""The debugging arguments of a job's command line.

    --is-debug [TEXT]                             debug this run; bare, "true", "1", "yes" and "on" mean yes
    --debug-relay-connection-name NAME            hybrid connection
    --debug-port PORT                             the port your launch.json names (default 5678)
    --debug-relay-connection-string-secret NAME   Key Vault secret that holds the connection string
    --debug-wait SECONDS                          how long to wait for a debugger (default 600; 0: do not wait)

Pipelines hand every value over as text, so "False", "none" and "" are ordinary values here. The arguments share the
command line with the job's own: nothing in this module exits, prints or removes anything from it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

from relay_core.errors import UsageError

__all__ = ["DEFAULT_PORT", "DEFAULT_WAIT", "StepArguments", "add_debug_arguments", "parse_step_arguments"]

DEFAULT_PORT = 5678
"""debugpy's customary port, and what `launch.json` files name."""
DEFAULT_WAIT = 600.0
"""Seconds a job waits for its debugger: long enough to press F5, short enough for a forgotten debug run."""

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off", "none", ""})


class StepArguments(NamedTuple):
    """What the command line says about debugging."""

    is_debug: bool = False
    connection_name: str | None = None
    """Hybrid connection; None when absent, empty or the pipelines' placeholder "none"."""
    port: int = DEFAULT_PORT
    connection_string_secret: str | None = None
    """Name of a Key Vault secret, never the connection string itself."""
    wait: float = DEFAULT_WAIT
    """Seconds; 0 means that the job does not wait."""


def add_debug_arguments(parser: argparse.ArgumentParser) -> None:
    """Let a parser that refuses unknown arguments accept the debugging arguments.

    `start_remote_debugging_from_args` reads them by itself. In the parser's result `is_debug` is a bool and the
    others are text.
    """
    _add_arguments(parser, is_debug=_is_true)


def parse_step_arguments(argv: Sequence[str] | None = None) -> StepArguments:
    """Return what `argv` (default: `sys.argv[1:]`) says about debugging, whatever else it holds.

    Values other than `--is-debug` are looked at in a debug run only: they cannot hurt another one.

    Raises:
        UsageError: a value cannot be understood.
    """
    parser = _QuietParser(add_help=False, allow_abbrev=False)
    _add_arguments(parser, is_debug=str)
    found = parser.parse_known_args(sys.argv[1:] if argv is None else list(argv))[0]
    if not _flag(found.is_debug):
        return StepArguments()
    return StepArguments(
        is_debug=True,
        connection_name=_name(found.debug_relay_connection_name),
        port=_port(found.debug_port),
        connection_string_secret=_name(found.debug_relay_connection_string_secret),
        wait=_seconds(found.debug_wait),
    )


class _QuietParser(argparse.ArgumentParser):
    """A parser that raises where argparse prints the usage and ends the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"the debugging arguments cannot be read: {message}")


def _add_arguments(parser: argparse.ArgumentParser, *, is_debug: Callable[[str], object]) -> None:
    """Define the options; every value is optional text, so that argparse itself finds nothing to refuse."""
    group = parser.add_argument_group("remote debugging")

    def add(flag: str, metavar: str, text: str, default: str) -> None:
        group.add_argument(flag, nargs="?", const="", default=default, metavar=metavar, help=text)

    group.add_argument(
        "--is-debug", nargs="?", const=is_debug("true"), default="false", type=is_debug, metavar="TEXT",
        help='debug this run: "true", "1", "yes", "on" or no value at all',
    )  # fmt: skip
    add("--debug-relay-connection-name", "NAME", "Azure Relay hybrid connection", "")
    add("--debug-port", "PORT", "port in your launch.json (default %(default)s)", str(DEFAULT_PORT))
    add("--debug-relay-connection-string-secret", "NAME", "Key Vault secret with the connection string", "")
    add("--debug-wait", "SECONDS", "how long to wait for a debugger (default %(default)s)", f"{DEFAULT_WAIT:g}")


def _is_true(text: str) -> bool:
    return text.strip().lower() in _TRUE


def _flag(text: str) -> bool:
    """Read a text flag, in which "False" is false."""
    if not _is_true(text) and text.strip().lower() not in _FALSE:
        raise UsageError(f"--is-debug '{text}' is neither true nor false", hint="say --is-debug true")
    return _is_true(text)


def _name(text: str) -> str | None:
    name = text.strip()
    return None if name.lower() in {"", "none"} else name


def _port(text: str) -> int:
    if not (text.isascii() and text.strip().isdecimal() and 1 <= int(text) <= 65535):
        raise UsageError(f"--debug-port '{text}' is not a port", hint="use a number from 1 to 65535, such as 5678")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise UsageError(f"--debug-wait '{text}' is not a number of seconds", hint="use 0 or more, such as 600")
    return seconds
