"""`relay-client eval` and `relay-client diff`: one expression in all ranks."""

from __future__ import annotations

import argparse
from dataclasses import replace

from relay_client.cli.common import Commands, add_command, add_json, add_ranks
from relay_client.cli.inspection.asking import add_client, ask
from relay_client.verbs.values import Diff, Evaluate
from relay_client.verbs.verb import check
from relay_core.value_parsers import named, parse_duration

__all__ = ["add_parser"]


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add both commands."""
    evaluate = add_command(
        commands,
        "eval",
        run,
        summary="evaluate an expression in all ranks",
        description="Evaluates a Python expression in all ranks. If a rank is stopped, the expression is evaluated in "
        "the innermost frame of your code; otherwise, it is evaluated with the globals of the rank's program or, if it "
        "has other names, in the innermost frame of your code that has them. Equal values are grouped, "
        "rarest first. The command does not stop any rank, and editors can stay attached. Exits with status 17 if "
        "the expression has no value in any rank.",
    )
    evaluate.add_argument(
        "--diff", action="store_true", default=False, help="compare values by checksum, as 'relay-client diff' does"
    )
    compare = add_command(
        commands,
        "diff",
        run,
        summary="compare a value across all ranks",
        description="Compares the value of a Python expression, such as 'model.state_dict()', across all ranks. "
        "Tensors and arrays are compared by shape, dtype and a checksum that is computed in the job. Finds and shows "
        "the first difference; the data stays in the job. Exits with status 17 if the expression has no value in any "
        "rank.",
    )
    compare.set_defaults(diff=True)
    for parser in (evaluate, compare):
        parser.add_argument("expression", metavar="EXPRESSION", help="a Python expression")
        add_ranks(parser)
        parser.add_argument(
            "--ports",
            "--port",
            default="",
            metavar="LIST",
            help="logical ports, such as 5678 or 5678-5685, to choose one of several jobs (default: all)",
        )
        parser.add_argument(
            "--timeout",
            default=None,
            metavar="TIME",
            help="time limit for each rank, such as 30s or 5m (default: 5s, or 60s for checksums)",
        )
        add_client(parser)
        add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the values."""
    verb = Diff if arguments.diff else Evaluate
    request = verb(arguments.expression, arguments.ranks, arguments.ports)
    check(request, lambda field: f"--{field}")
    with named("--timeout"):
        seconds = 0.0 if arguments.timeout is None else parse_duration(arguments.timeout)
    return ask(arguments, replace(request, seconds=seconds or request.seconds))
