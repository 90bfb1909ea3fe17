"""The command `help` of relay-client and relay-agent."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Mapping

from relay_core.errors import UsageError
from relay_core.program.options import CREDENTIALS, access_options
from relay_core.value_parsers import closest

__all__ = ["add_help_command"]


def add_help_command(
    parser: argparse.ArgumentParser,
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    topics: Mapping[str, argparse.ArgumentParser] | None = None,
) -> None:
    """Add the command to a program.

    Args:
        parser: The parser of the whole command line.
        commands: Its commands.
        topics: Parsers of options that no command's help lists, by topic.
    """
    by_topic = {CREDENTIALS: access_options(parser.prog), **(topics or {})}
    added = commands.add_parser(
        "help",
        help="show help for a command or a topic",
        description=f"Shows help for this program, a command or a topic. 'help {CREDENTIALS}' lists the options shared "
        "by all commands that connect to a relay.",
        argument_default=argparse.SUPPRESS,
    )
    added.add_argument("topic", nargs="?", default="", metavar="TOPIC", help=f"a command, {' or '.join(by_topic)}")
    added.set_defaults(command=functools.partial(_show, {"": parser, **by_topic}, commands.choices))


def _show(
    topics: Mapping[str, argparse.ArgumentParser],
    commands: Mapping[str, argparse.ArgumentParser],
    arguments: argparse.Namespace,
) -> int:
    found = topics.get(arguments.topic) or commands.get(arguments.topic)
    if found is None:
        similar = closest(arguments.topic, [*topics, *commands])
        hint = f"did you mean '{similar}'?" if similar else "use --help to list the commands"
        raise UsageError(f"no such command: '{arguments.topic}'", hint=hint)
    found.print_help()
    return 0
