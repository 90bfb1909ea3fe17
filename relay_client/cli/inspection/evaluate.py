"""`relay-client eval` and `relay-client diff`: one expression in all ranks."""

from __future__ import annotations

import argparse
import json
import sys
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
from relay_core.exit_codes import NO_VALUE
from relay_core.value_parsers import named, parse_duration

if TYPE_CHECKING:
    from relay_client.agents.tunnels import Tunnels

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
        add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the values."""
    from relay_client.compare.collect import collect_values
    from relay_client.compare.console import DIFF_SECONDS, VALUE_SECONDS
    from relay_client.compare.differences import find_differences
    from relay_client.compare.groups import odd_ones_first
    from relay_client.compare.render import as_objects, hint_about_jobs, hint_for, show_values
    from relay_client.number_lists import parse_ports
    from relay_core.agent_api.evaluation import Evaluate, Selection

    chosen_ranks(arguments)  # checked here, because its error names the option
    if arguments.ports:
        with named("--ports"):
            parse_ports(arguments.ports)  # for the same reason
    with named("--timeout"):
        default = DIFF_SECONDS if arguments.diff else VALUE_SECONDS
        seconds = default if arguments.timeout is None else parse_duration(arguments.timeout)
    selection = Selection() if arguments.diff else None
    limit = seconds or VALUE_SECONDS
    request = Evaluate(arguments.expression, arguments.ranks, limit, selection, ports=arguments.ports).checked()

    status = 0

    async def show(tunnels: Tunnels) -> None:
        nonlocal status
        async with tunnels:
            await tunnels.discover_all()
            groups = odd_ones_first(await collect_values(tunnels, request))
            if not groups:
                raise NoListener(
                    "no matching process is registered",
                    hint="run 'relay-client targets' to list the registered processes",
                )
            differences = await find_differences(tunnels, request, groups) if arguments.diff else None
        if arguments.json:
            print(json.dumps({"groups": as_objects(groups, differences)}, indent=2))
        else:
            print(show_values(groups, differences))
        if hint := hint_for(groups) or hint_about_jobs(groups):
            print(f"hint: {hint}", file=sys.stderr)
        status = NO_VALUE if all(group.error for group in groups) else 0

    quiet_logging(arguments)
    return run_with_tunnels(arguments, show) or status
