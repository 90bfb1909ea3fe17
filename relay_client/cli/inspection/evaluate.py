"""`relay-client eval` and `relay-client diff`: one expression in all ranks."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from relay_client.cli.common import (
    Commands,
    add_command,
    add_json,
    add_ranks,
    chosen_ranks,
    quiet_logging,
    run_with_tunnels,
)
from relay_core.errors import NoListener
from relay_core.values import named, parse_duration

if TYPE_CHECKING:
    from relay_client.agents.tunnels import Tunnels

__all__ = ["add_parser"]


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add both commands."""
    evaluate = add_command(
        commands,
        "eval",
        run,
        summary="evaluate an expression in all ranks, and group equal values, rarest first",
        description="Evaluates a Python expression in all ranks: in the innermost frame of your code if the rank is "
        "stopped, otherwise in the globals of its program. Equal values are grouped, rarest first. No rank is stopped, "
        "and editors may be attached.",
    )
    evaluate.add_argument("--diff", action="store_true", default=False, help="compare values by checksum, as diff does")
    compare = add_command(
        commands,
        "diff",
        run,
        summary="compare a value in all ranks by checksum, and show the first difference",
        description="Compares the value of a Python expression, such as 'model.state_dict()', between all ranks: "
        "tensors and arrays by shape, dtype and checksum, computed in the job. Finds and shows the first "
        "difference; the data stays in the job.",
    )
    compare.set_defaults(diff=True)
    for parser in (evaluate, compare):
        parser.add_argument("expression", metavar="EXPRESSION", help="a Python expression")
        add_ranks(parser)
        parser.add_argument(
            "--timeout",
            default=None,
            metavar="TIME",
            help="time limit for each rank, such as 30s or 5m (default: 5s, and 60s for checksums)",
        )
        add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the values."""
    from relay_client.compare.collect import collect_values, find_differences
    from relay_client.compare.console import DIFF_SECONDS, VALUE_SECONDS
    from relay_client.compare.groups import odd_ones_first
    from relay_client.compare.render import as_objects, show_values
    from relay_core.agent_api.evaluation import Evaluate, Selection

    chosen_ranks(arguments)  # an error is of this option
    with named("--timeout"):
        default = DIFF_SECONDS if arguments.diff else VALUE_SECONDS
        seconds = default if arguments.timeout is None else parse_duration(arguments.timeout)
    selection = Selection() if arguments.diff else None
    request = Evaluate(arguments.expression, arguments.ranks, seconds or VALUE_SECONDS, selection).checked()

    async def show(tunnels: Tunnels) -> None:
        async with tunnels:
            await tunnels.discover_all()
            groups = odd_ones_first(await collect_values(tunnels, request))
            if not groups:
                raise NoListener(
                    "no process has these ranks", hint="relay-client targets lists the registered processes"
                )
            differences = await find_differences(tunnels, request, groups) if arguments.diff else None
        if arguments.json:
            print(json.dumps({"groups": as_objects(groups, differences)}, indent=2))
        else:
            print(show_values(groups, differences))

    quiet_logging(arguments)
    return run_with_tunnels(arguments, show)
