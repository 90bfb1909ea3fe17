"""`relay-client group`: chooses the ranks that move together in an editor's session of all ranks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from relay_client.cli.common import Commands
from relay_client.cli.running.common import add_running_command, as_json, first_response, run_with_clients

if TYPE_CHECKING:
    from relay_client.control.client import ControlClient

__all__ = ["add_parser"]


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_running_command(
        commands,
        "group",
        run,
        summary="choose the ranks that step together",
        description="Chooses the ranks that continue, step and pause together in editors that are attached to the "
        "--all-ranks port, as @group does in the debug console. Without GROUP, prints the current group.",
    )
    parser.add_argument(
        "group",
        nargs="?",
        default=None,
        metavar="GROUP",
        help="ranks in the group: all, here (the ranks at the same place as the rank that the editor shows), or a list "
        "such as 0,3-5",
    )


def run(arguments: argparse.Namespace) -> int:
    """Choose the group."""
    from relay_client.control.messages import ChooseGroup

    async def choose(clients: Sequence[ControlClient]) -> None:
        chosen = await first_response(clients, ChooseGroup(arguments.group))
        print(as_json(chosen) if arguments.json else chosen.text)

    return run_with_clients(arguments, choose)
