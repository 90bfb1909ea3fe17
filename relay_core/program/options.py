"""Command line definitions that the programs share: the options for credentials, and types of values."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from typing import TypeVar

from relay_core.access_settings import ACCESS_OPTIONS, AccessOption, AccessSettings
from relay_core.errors import UsageError

T = TypeVar("T")

CREDENTIALS = "credentials"
"""Title of the group of these options, and the topic of `help` that lists them."""
_ALWAYS_LISTED = frozenset({"hc"})

logger = logging.getLogger(__name__)


def add_access_options(parser: argparse.ArgumentParser, *, lists_all: bool = False) -> None:
    """Add the options for credentials to a parser; `access_settings` reads the result.

    Args:
        parser: The parser of a command.
        lists_all: Whether the parser's help lists all of these options. They would fill the screen, so the help of each
            command refers to `PROGRAM help credentials` instead.
    """
    program = parser.prog.partition(" ")[0]
    group = parser.add_argument_group(
        CREDENTIALS, None if lists_all else f"Run '{program} help {CREDENTIALS}' to list the other credential options."
    )
    for option in ACCESS_OPTIONS:
        is_listed = lists_all or option.field in _ALWAYS_LISTED
        group.add_argument(
            option.option, metavar=option.metavar, help=_help(option) if is_listed else argparse.SUPPRESS
        )
    group.add_argument("--explain-auth", action="store_true", help="show where credentials come from, and exit")


def access_options(program: str) -> argparse.ArgumentParser:
    """Return a parser whose help lists all options for credentials."""
    parser = argparse.ArgumentParser(
        prog=f"{program} COMMAND",
        usage="%(prog)s [options]",
        description="Options shared by all commands that connect to a relay. If an option is absent, its environment "
        "variable applies. --explain-auth shows which credentials are found and which of them are used.",
        add_help=False,
    )
    add_access_options(parser, lists_all=True)
    return parser


def _help(option: AccessOption) -> str:
    default = option.variable or option.default
    return f"{option.help} (default: {default})" if default else option.help


def access_settings(arguments: argparse.Namespace) -> AccessSettings:
    """Return the credential settings of a command line; log a warning if it contains a key."""
    if arguments.connection_string:
        logger.warning(
            "--connection-string exposes the key to every user of this machine; use --connection-string-file"
        )
    return AccessSettings(**{option.field: getattr(arguments, option.field) for option in ACCESS_OPTIONS})


def argument_type(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Return a `type` for argparse, which puts the option's name in front of the message from `parse`."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert
