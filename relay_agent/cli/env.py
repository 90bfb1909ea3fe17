"""`relay-agent env`: prints the rank that the environment of a process defines."""

from __future__ import annotations

import argparse
import os

from relay_agent.cli.common import Commands
from relay_agent.settings.model import DEFAULT_PORT
from relay_core.program.options import argument_type
from relay_core.value_parsers import parse_port

__all__ = ["add_parser"]


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "env",
        help="print the rank that this environment defines, and its source",
        description="Prints the rank of a process started in this environment, and the launcher whose variables "
        "define it.",
    )
    parser.add_argument(
        "--port",
        type=argument_type(parse_port),
        default=DEFAULT_PORT,
        metavar="PORT",
        help="logical port of rank 0 (default: %(default)s)",
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the rank and the variables that define it."""
    from relay_agent.ranks import explain

    print(*explain(os.environ, arguments.port), sep="\n")
    return 0
