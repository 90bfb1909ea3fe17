"""The commands of the verbs, whose options are the fields of the verb: `relay-client stacks --ranks 0-3 --locals`."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Iterator
from typing import Any

from relay_client.cli.common import PORTS, Commands, add_command, add_json, add_ranks
from relay_client.cli.inspection.asking import ask
from relay_client.cli.running import add_client
from relay_client.verbs.verb import Verb, check
from relay_core.value_parsers import named, parse_duration

OPTIONS = {"ports": PORTS, "seconds": ("--timeout",)}
"""The options of fields that have another name on the command line, or several."""
PORTS_HELP = "logical ports, such as 5678 or 5678-5685, to choose one of several jobs (default: all)"


class VerbCommand:
    """Adds and performs the command of a verb; a command with more options is a subclass.

    Args:
        verb: The verb.
    """

    def __init__(self, verb: type[Verb]) -> None:
        self._verb = verb

    def add_parser(self, commands: Commands[argparse.ArgumentParser]) -> None:
        """Add the command."""
        command = self._verb.command
        parser = add_command(
            commands, self._verb.name, self.run, summary=command.summary, description=command.description
        )
        for field, text in self._shown():
            options = OPTIONS.get(field.name, (f"--{field.name.replace('_', '-')}",))
            if field.name in command.optional:
                parser.add_argument(field.name, metavar=field.name.upper(), nargs="?", default=field.default, help=text)
            elif field.default is dataclasses.MISSING:
                parser.add_argument(field.name, metavar=field.name.upper(), help=text)
            elif field.name == "ranks":
                add_ranks(parser)
            elif isinstance(field.default, bool):
                parser.add_argument(*options, dest=field.name, action="store_true", default=field.default, help=text)
            else:
                metavar = "TIME" if field.name == "seconds" else "LIST"
                parser.add_argument(*options, dest=field.name, default=field.default, metavar=metavar, help=text)
        self.add_options(parser)
        add_client(parser)
        add_json(parser)

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add options that are not fields."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Perform the verb, print the answer, and return the exit status."""
        return ask(arguments, self.request(arguments))

    def request(self, arguments: argparse.Namespace, **more: object) -> Verb:
        """Return the request that a command line describes.

        Args:
            arguments: The parsed command line.
            more: The values of other fields, or better ones.

        Raises:
            UsageError: an argument is invalid.
        """
        given: dict[str, Any] = {field.name: getattr(arguments, field.name) for field, _ in self._shown()}
        if isinstance(seconds := given.get("seconds"), str):
            with named("--timeout"):
                given["seconds"] = parse_duration(seconds)
        names = {field.name for field in dataclasses.fields(self._verb)}
        given |= {name: value for name, value in _terminal(arguments).items() if name in names}
        request = self._verb(**{**given, **more})
        check(request, lambda field: f"--{field}")
        return request

    def _shown(self) -> Iterator[tuple[dataclasses.Field[object], str]]:
        """Yield each field that is an argument of the command, with its help."""
        texts = {"ranks": "", "ports": PORTS_HELP, **self._verb.command.arguments}
        for field in dataclasses.fields(self._verb):
            if field.name in texts:
                yield field, texts[field.name]


def _terminal(arguments: argparse.Namespace) -> dict[str, object]:
    """Return how the terminal at stdout shows text; nothing if there is none. NO_COLOR: https://no-color.org."""
    import shutil

    if arguments.json or not sys.stdout.isatty():
        return {}
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in {"dumb", "unknown"}
    return {"width": shutil.get_terminal_size().columns, "color": not is_plain}
