"""`relay-client release`: disconnects the debuggers of this machine from a rank."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from relay_client.cli.common import Commands
from relay_client.cli.running.common import add_running_command, as_json, first_response, run_with_clients
from relay_client.ui.text import format_ranks

if TYPE_CHECKING:
    from relay_client.control.client import ControlClient

__all__ = ["add_parser"]


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_running_command(
        commands,
        "release",
        run,
        summary="disconnect the debugger of a rank; the rank continues",
        description="Closes a running relay-client's connections to a rank, and the local port that 'attach' opened "
        "for it. The rank then continues at full speed.",
    )
    parser.add_argument("rank", type=int, metavar="RANK", help="global rank")


def run(arguments: argparse.Namespace) -> int:
    """Release the rank."""
    from relay_client.control.messages import Release

    async def release(clients: Sequence[ControlClient]) -> None:
        released = await first_response(clients, Release(arguments.rank))
        if arguments.json:
            print(as_json(released))
            return
        count = released.connections
        closed = f"{count} connection{'' if count == 1 else 's'} closed"
        print(f"{format_ranks([arguments.rank])} is released: {closed}")

    return run_with_clients(arguments, release)
