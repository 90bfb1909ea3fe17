"""`relay-client stacks`: shows the current stacks of all ranks, grouped by identical stack."""

from __future__ import annotations

import argparse
import sys

from relay_client.cli.common import Commands, add_command, add_json, add_ranks
from relay_client.cli.inspection.asking import add_client, ask
from relay_client.verbs.stacks import Stacks

__all__ = ["add_parser"]


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "stacks",
        run,
        summary="show what all ranks are doing, grouped by stack",
        description="Shows the stacks of all ranks, grouped by identical stack, outliers first. Also works for "
        "processes that hang.",
    )
    add_ranks(parser)
    parser.add_argument(
        "--locals", action="store_true", default=False, help="include the local variables of each frame"
    )
    parser.add_argument(
        "--all-threads", action="store_true", default=False, help="include threads other than the main one"
    )
    add_client(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the stacks."""
    color = sys.stdout.isatty() and not arguments.json
    request = Stacks(arguments.ranks, locals=arguments.locals, all_threads=arguments.all_threads, color=color)
    return ask(arguments, request)
