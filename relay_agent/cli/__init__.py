"""The `relay-agent` command, with its subcommands. Only this package prints.

The modules import the dependencies of a command only when the command runs, so that `relay-agent run` does not import
asyncio and TLS.
"""

from __future__ import annotations

import argparse
import sys

from relay_agent.cli import run as run_command
from relay_agent.cli.commands import PROGRAM, add_doctor, add_env, add_node_agent, add_serve
from relay_core.program.console import configure_logging, run_program
from relay_core.program.parser import ProgramParser, add_help_command, add_version

__all__ = ["main", "make_parser", "run"]

COMMANDS = (add_serve, run_command.add_parser, add_env, add_doctor, add_node_agent)
"""What adds each command, in the order in which `--help` lists them."""


def run() -> None:
    """Entry point of the console script."""
    sys.exit(run_program(PROGRAM, main))


def main(argv: list[str]) -> int:
    """Run one command and return its exit status; see `relay_core.errors` for the codes."""
    arguments = make_parser().parse_args(_as_command(argv))
    configure_logging(PROGRAM, verbose=arguments.verbose)
    status: int = _explain(arguments) if arguments.explain_auth else arguments.command(arguments)
    return status


def _as_command(argv: list[str]) -> list[str]:
    """Turn the arguments of `python -m relay_agent train.py` (as in OpenPAI's paipdb tool) into those of `run`."""
    if argv[:1] != ["-m"] and not (argv and argv[0].endswith(".py")):
        return argv
    before = sys.orig_argv[1 : len(sys.orig_argv) - len(argv)]  # such as -u -m relay_agent
    options = before[: before.index("-m")] if "-m" in before else []
    return ["run", "--", sys.executable, *options, *argv]


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser: argparse.ArgumentParser = ProgramParser(
        prog=PROGRAM, description="Connects programs on this machine to relay-client through a hybrid connection."
    )
    parser.add_argument("--verbose", action="store_true", help="enable debug logging")
    add_version(parser)
    parser.set_defaults(explain_auth=False)  # for the commands without access options
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for add_command in COMMANDS:
        add_command(commands)
    add_help_command(parser, commands)
    return parser


def _explain(arguments: argparse.Namespace) -> int:
    from relay_core.program.explain import explain_auth

    return explain_auth(PROGRAM, arguments, side="agent")
