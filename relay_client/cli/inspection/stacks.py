"""`relay-client stacks`: shows the current stacks of all ranks, grouped by identical stack."""

from __future__ import annotations

import argparse
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

if TYPE_CHECKING:
    from relay_client.agents.tunnels import Tunnels

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
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the stacks."""
    from relay_client.stacks.collect import collect_stacks
    from relay_client.stacks.groups import read_replies
    from relay_client.stacks.render import show_stacks, stacks_as_json
    from relay_client.ui.text import format_ranks
    from relay_core.value_parsers import format_ranges

    ranks = chosen_ranks(arguments)

    async def show(tunnels: Tunnels) -> None:
        async with tunnels:
            await tunnels.discover_all()
            replies = await collect_stacks(tunnels, ranks, with_locals=arguments.locals)
        processes = read_replies(replies, ranks)
        if ranks is not None and not processes:
            known = {process.rank for process in read_replies(replies) if process.rank is not None}
            listing = "run 'relay-client targets' to list the registered processes"
            hint = f"use a registered rank: {format_ranges(sorted(known))}" if known else listing
            raise NoListener(f"no process has {format_ranks(ranks)}", hint=hint)
        if arguments.json:
            print(stacks_as_json(replies, ranks=ranks, all_threads=arguments.all_threads))
            return
        options = {"ranks": ranks, "locals": arguments.locals, "all_threads": arguments.all_threads}
        print(show_stacks(replies, **options, color=sys.stdout.isatty()))

    quiet_logging(arguments)
    return run_with_tunnels(arguments, show)
