"""The argument parser of the programs: `--version`, and one short sentence for a word that is misspelt.

argparse would list all commands for a misspelt one, and print the usage of the whole program for an unknown option of a
command.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from relay_core.errors import UsageError
from relay_core.program.options import CREDENTIALS, access_options
from relay_core.value_parsers import closest

DISTRIBUTION = "relay-debug"
"""Name of the installed package."""


class ProgramParser(argparse.ArgumentParser):
    """Parser of a program, and of each of its commands.

    Args:
        option_for_numbers: The option that a number given instead of a command is probably meant for; "" if there is
            none.
        options: As for argparse.
    """

    _given: Sequence[str] = ()

    def __init__(self, *, option_for_numbers: str = "", **options: Any) -> None:
        super().__init__(**options)
        self._option_for_numbers = option_for_numbers

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments; unlike argparse, exit if some are unknown, with the usage of this command."""
        self._given = list(sys.argv[1:] if args is None else args)
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            option = next((text for text in rest if text.startswith("-")), None)
            self.error(self._no_such_option(option) if option else f"unexpected argument: '{rest[0]}'")
        return found, rest

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, and exit; an unknown option is the likely cause of any other error."""
        option = next(self._unknown_options(), None)
        super().error(self._no_such_option(option) if option else message)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if not isinstance(action, argparse._SubParsersAction) or value in action.choices:  # noqa: SLF001 - no public name
            super()._check_value(action, value)
            return
        self._given = self._given[: self._given.index(value)] if value in self._given else self._given
        similar = closest(value, [listed.dest for listed in action._choices_actions])  # noqa: SLF001 - as above
        hint = f"did you mean '{similar}'?" if similar else f"run '{self.prog} --help' to list the commands"
        if self._option_for_numbers and value[:1].isdecimal():
            hint = f"did you mean {self._option_for_numbers} {value}?"
        self.error(f"no such command: '{value}'. hint: {hint}")

    def _unknown_options(self) -> Iterator[str]:
        """Yield the unknown long options of this parser's own part of the command line, also those with one dash."""
        known, commands = self._option_string_actions, commands_of(self)
        for text in self._given:
            if text == "--" or text in commands:
                return
            name = text.partition("=")[0]
            is_prefix = self.allow_abbrev and any(option.startswith(name) for option in known)
            if f"-{name}" in known or (text.startswith("--") and name not in known and not is_prefix):
                yield text

    def _no_such_option(self, text: str) -> str:
        option = text.partition("=")[0]
        similar = closest(option.lstrip("-"), [name[2:] for name in self._option_string_actions if name[:2] == "--"])
        hint = f"did you mean --{similar}?" if similar else f"run '{self.prog} --help' to list the options"
        return f"no such option: {option}. hint: {hint}"


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands by name."""
    return {
        name: command
        for action in parser._actions  # noqa: SLF001 - argparse has no public way to list options
        if isinstance(action, argparse._SubParsersAction)  # noqa: SLF001 - as above
        for name, command in action.choices.items()
    }


def add_version(parser: argparse.ArgumentParser) -> None:
    """Add `--version`, which prints the program's name and the version of the installed package, and exits."""
    parser.add_argument("--version", action=_PrintVersion, nargs=0, help="show the version, and exit")


def installed_version(distribution: str = DISTRIBUTION) -> str | None:
    """Return the version of a package, which is not imported; None if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - rarely needed

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


class _PrintVersion(argparse.Action):
    """Prints the version, and reads it only then: `argparse`'s own action would need it for every command line."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, "dest": argparse.SUPPRESS, "default": argparse.SUPPRESS})

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(parser.prog, installed_version() or "(unknown version)")  # noqa: T201 - the requested output
        parser.exit()


# The command `help` of relay-client and relay-agent.


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
