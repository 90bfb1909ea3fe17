"""The `relay-client` command: its options, and its commands. Only this package prints.

Each module imports what its command needs only when the command runs: `--help` must not wait for asyncio and TLS.
"""

from __future__ import annotations

import argparse
import sys
from typing import Protocol

from relay_client.cli import attach, demo, doctor, forward, init, mcp, pdb, running, tensorboard, wait
from relay_client.cli.common import PROGRAM, Commands, add_quiet, add_verbose
from relay_client.cli.inspection.hang import HangCommand
from relay_client.cli.inspection.verb_command import VerbCommand
from relay_client.cli.inspection.watch import WatchCommand
from relay_client.cli.push import PushCommand
from relay_client.verbs.hang import Hang
from relay_client.verbs.push import Push
from relay_client.verbs.table import VERBS
from relay_client.verbs.watch import Watch
from relay_core.program.completion import add_completion_command
from relay_core.program.console import configure_logging, run_program
from relay_core.program.options import add_access_options
from relay_core.program.parser import ProgramParser, add_help_command, add_version

__all__ = ["main", "make_parser", "run"]


class _Command(Protocol):
    def add_parser(self, commands: Commands[argparse.ArgumentParser], /) -> None:
        """Add the command, or several."""


COMMANDS: tuple[_Command, ...] = (
    *(init, doctor, wait, attach, tensorboard),
    *({Hang: HangCommand, Watch: WatchCommand, Push: PushCommand}.get(verb, VerbCommand)(verb) for verb in VERBS),
    *(pdb, mcp, demo, running),
)
"""Modules and the commands of verbs, in the order in which `--help` lists them."""


def run() -> None:
    """Run the program and exit with its status; this is the entry point of the console script."""
    sys.exit(run_program(PROGRAM, main))


def main(argv: list[str]) -> int:
    """Run one command and return its exit status; see `relay_core.errors` for the codes."""
    arguments = make_parser().parse_args(argv)
    # On a terminal, a person sees when a line appears; in a file or a pipe, each line needs a time.
    has_times = arguments.keeps_running and not sys.stderr.isatty()
    configure_logging(PROGRAM, verbose=arguments.verbose, quiet=arguments.quiet, has_times=has_times)
    status: int = _explain(arguments) if arguments.explain_auth else arguments.command(arguments)
    return status


def make_parser() -> argparse.ArgumentParser:
    """Return the parser for the whole command line; without a subcommand, the program forwards ports."""
    parser: argparse.ArgumentParser = ProgramParser(
        option_for_numbers="--ports",
        prog=PROGRAM,
        allow_abbrev=False,  # argparse would mistake a command's options for abbreviations of these
        usage="%(prog)s [options] [COMMAND ...]",
        description="Makes the debugger port of a remote job available at 127.0.0.1:PORT, even if nothing can "
        "connect to the job directly. Without a command, forwards the ports until Ctrl-C; run "
        f"'{PROGRAM} help {forward.FORWARDING}' to list all options.",
    )
    forward.add_options(parser)
    add_access_options(parser)
    add_verbose(parser)
    add_quiet(parser)
    add_version(parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", prog=PROGRAM)
    for command in COMMANDS:
        command.add_parser(commands)
    add_completion_command(parser, commands)
    add_help_command(parser, commands, {forward.FORWARDING: forward.forwarding_options()})
    return parser


def _explain(arguments: argparse.Namespace) -> int:
    from relay_core.program.explain import explain_auth

    return explain_auth(PROGRAM, arguments, side="client")
