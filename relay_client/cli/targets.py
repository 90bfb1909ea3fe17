"""`relay-client targets`: lists the processes that can be debugged."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from relay_client.cli.common import Commands, add_command, add_json, quiet_logging, run_with_tunnels, table_rows

if TYPE_CHECKING:
    from relay_client.agents.tunnels import Tunnels
    from relay_client.ui.target_table import Row

__all__ = ["add_parser"]


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "targets",
        run,
        summary="list the processes that can be debugged",
        description="Lists each process that can be debugged, with its node, rank, logical port, process id, script "
        "and state. If the job was started with --debug-monitor, also lists CPU, memory and GPU usage.",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print a table, or JSON."""
    from relay_client.ui.target_table import as_json, by_node, plain_table, run_lines

    async def show(tunnels: Tunnels) -> None:
        async with tunnels:
            await tunnels.discover_all()
            agents, lines = by_node(tunnels.roster), table_rows(tunnels)
        if arguments.json:
            print(json.dumps(as_json(agents), indent=2))
            return
        if not _print_rich_table(lines):
            print(plain_table(lines))
        print("".join(f"\n{line}" for line in run_lines(agents)), end="\n" if run_lines(agents) else "")

    quiet_logging(arguments)
    return run_with_tunnels(arguments, show)


def _print_rich_table(lines: list[Row]) -> bool:
    """Print a formatted table; return False if stdout is not a terminal or rich is not installed."""
    from relay_client.ui.live_table import rich_console
    from relay_client.ui.target_table import rich_table

    console = rich_console() if sys.stdout.isatty() else None
    if console is None:
        return False
    console.print(rich_table(lines, console.width))
    return True
