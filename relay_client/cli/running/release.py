"""`relay-client release`: disconnects this machine's debuggers from a rank."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from relay_client.cli.common import Commands
from relay_client.cli.running.common import add_running_command, as_json, first_response, run_with_clients
from relay_client.ui.text import format_ranks
from relay_core.errors import RelayDebugError, UsageError
from relay_core.program.options import argument_type
from relay_core.value_parsers import parse_port

if TYPE_CHECKING:
    from relay_client.control.client import ControlClient

__all__ = ["add_parser"]


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_running_command(
        commands,
        "release",
        run,
        summary="disconnect a rank's debugger; the rank continues",
        description="Closes a running relay-client's connections to a rank, and the local port that 'attach' opened "
        "for that rank. The rank then continues at full speed.",
    )
    parser.add_argument("rank", type=int, nargs="?", default=None, metavar="RANK", help="global rank")
    parser.add_argument(
        "--port",
        type=argument_type(parse_port),
        default=None,
        metavar="PORT",
        help="logical port of the process; use it if several jobs have this rank",
    )


def run(arguments: argparse.Namespace) -> int:
    """Release the rank.

    Raises:
        UsageError: neither a rank nor a port is given, or both are.
    """
    from relay_client.control.messages import Release

    rank, port = arguments.rank, arguments.port
    if (rank is None) == (port is None):
        raise UsageError("give either a rank or a port", hint="run, for example, 'relay-client release 3'")

    async def release(clients: Sequence[ControlClient]) -> None:
        # Only one of several relay-clients may hold the rank; the others refuse.
        released = await first_response(clients, Release(rank, port), RelayDebugError)
        if arguments.json:
            print(as_json(released))
            return
        count = released.connections
        closed = f"{count} connection{'' if count == 1 else 's'} closed"
        print(f"{f'port {port}' if rank is None else format_ranks([rank])} is released: {closed}")

    return run_with_clients(arguments, release)
