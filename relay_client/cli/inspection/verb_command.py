"""The commands of those verbs whose options are their fields: `relay-client stacks --ranks 0-3 --locals`."""

from __future__ import annotations

import argparse
import dataclasses
import sys

from relay_client.cli.common import Commands, add_command, add_json, add_ranks
from relay_client.cli.inspection.asking import add_client, ask
from relay_client.verbs.table import JobRequest
from relay_client.verbs.verb import Command

__all__ = ["VerbCommand"]


class VerbCommand:
    """Adds the command of a verb; `ranks` and `ports` have the same option everywhere, `color` depends on the terminal.

    Args:
        verb: A verb with a `command`.
        command: Its texts.
    """

    def __init__(self, verb: type[JobRequest], command: Command) -> None:
        self._verb = verb
        self._command = command

    def add_parser(self, commands: Commands[argparse.ArgumentParser]) -> None:
        """Add the command."""
        command = self._command
        parser = add_command(
            commands, self._verb.name, self.run, summary=command.summary, description=command.description
        )
        for field in dataclasses.fields(self._verb):
            text = command.arguments.get(field.name)
            if field.default is dataclasses.MISSING:
                parser.add_argument(field.name, metavar=field.name.upper(), help=text)
            elif field.name == "ranks":
                add_ranks(parser)
            elif text is not None and isinstance(field.default, bool):
                option = f"--{field.name.replace('_', '-')}"
                parser.add_argument(option, action="store_true", default=field.default, help=text)
            elif text is not None:
                parser.add_argument(f"--{field.name}", default=field.default, metavar="LIST", help=text)
        add_client(parser)
        add_json(parser)

    def run(self, arguments: argparse.Namespace) -> int:
        """Perform the verb, and print the answer."""
        given = {field.name: getattr(arguments, field.name, None) for field in dataclasses.fields(self._verb)}
        if "color" in given:
            given["color"] = sys.stdout.isatty() and not arguments.json
        return ask(arguments, self._verb(**{name: value for name, value in given.items() if value is not None}))
