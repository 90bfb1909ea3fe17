"""Command line definitions that the programs share: the options for credentials, and types of values."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from typing import TypeVar

from relay_core.access_settings import ACCESS_OPTIONS, AccessOption, AccessSettings
from relay_core.errors import UsageError

__all__ = ["access_settings", "add_access_options", "argument_type"]

T = TypeVar("T")

logger = logging.getLogger(__name__)


def add_access_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for credentials to a parser; `access_settings` reads the result."""
    group = parser.add_argument_group("credentials", "--explain-auth shows which ones are found and which one is used.")
    for option in ACCESS_OPTIONS:
        group.add_argument(option.option, metavar=option.metavar, help=_help(option))
    group.add_argument("--explain-auth", action="store_true", help="show where credentials come from, and exit")


def _help(option: AccessOption) -> str:
    default = option.variable or option.default
    return f"{option.help} (default: {default})" if default else option.help


def access_settings(arguments: argparse.Namespace) -> AccessSettings:
    """Return the credential settings of a command line; log a warning if it contains a key."""
    if arguments.connection_string:
        logger.warning("--connection-string shows the key to every user of this machine; use --connection-string-file")
    return AccessSettings(**{option.field: getattr(arguments, option.field) for option in ACCESS_OPTIONS})


def argument_type(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Return a `type` for argparse, which puts the option's name in front of the message from `parse`."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert
