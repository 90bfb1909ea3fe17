"""`relay-client status`: shows nodes, ranks, local ports and connections of the running relay-clients."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from relay_client.cli.common import Commands
from relay_client.cli.running.common import add_running_command, answers, as_json, run_with_clients

if TYPE_CHECKING:
    from relay_client.control.client import ControlClient

__all__ = ["add_parser"]


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    add_running_command(
        commands,
        "status",
        run,
        summary="show nodes, ranks, stops and local ports",
        description="Shows this user's running relay-clients: their nodes, ranks and local ports, where each rank is "
        "stopped, and who holds it.",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the state."""
    from relay_client.cli.running.status_text import status_text
    from relay_client.control.messages import GetStatus

    async def show(clients: Sequence[ControlClient]) -> None:
        found = await answers(clients, GetStatus())
        if arguments.json:
            print(as_json(tuple(found)))
        else:
            print("\n\n".join(status_text(status) for status in found))

    return run_with_clients(arguments, show)
