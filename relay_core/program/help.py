"""The command `help` of relay-client and relay-agent."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Mapping

from relay_core.errors import UsageError
from relay_core.program.options import CREDENTIALS, access_options

__all__ = ["add_help_command"]


def add_help_command(
    parser: argparse.ArgumentParser, commands: argparse._SubParsersAction[argparse.ArgumentParser]
) -> None:
    """Add the command to a program.

    Args:
        parser: The parser of the whole command line.
        commands: Its commands.
    """
    added = commands.add_parser(
        "help",
        help="show the help of a command, or the options for credentials",
        description=f"Shows the help of this program or of a command. 'help {CREDENTIALS}' lists the options that all "
        "commands which connect to a relay have in common.",
        argument_default=argparse.SUPPRESS,
    )
    added.add_argument("topic", nargs="?", default="", metavar="TOPIC", help=f"a command, or {CREDENTIALS}")
    topics = {"": parser, CREDENTIALS: access_options(parser.prog)}
    added.set_defaults(command=functools.partial(_show, topics, commands.choices))


def _show(
    topics: Mapping[str, argparse.ArgumentParser],
    commands: Mapping[str, argparse.ArgumentParser],
    arguments: argparse.Namespace,
) -> int:
    found = topics.get(arguments.topic) or commands.get(arguments.topic)
    if found is None:
        raise UsageError(f"no such command: '{arguments.topic}'", hint="--help lists the commands")
    found.print_help()
    return 0
