"""`relay-client stop`: stops a running relay-client."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from relay_client.cli.common import Commands
from relay_client.cli.running.common import add_running_command, as_json, only_client, run_with_clients
from relay_core.errors import ConnectionLost

if TYPE_CHECKING:
    from relay_client.control.client import ControlClient

__all__ = ["add_parser"]


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_running_command(
        commands,
        "stop",
        run,
        summary="stop a running relay-client",
        description="Stops a running relay-client, as Ctrl-C does, and returns once its ports are closed.",
    )
    parser.add_argument("--all", action="store_true", default=False, help="stop all running relay-clients")


def run(arguments: argparse.Namespace) -> int:
    """Stop the relay-clients, and wait until they have exited."""
    from relay_client.control.messages import Stop

    async def stop(clients: Sequence[ControlClient]) -> None:
        chosen = clients if arguments.all else [only_client(clients)]
        for client in chosen:
            with contextlib.suppress(ConnectionLost):  # it has exited in the meantime
                await client.request(Stop())
        for client in chosen:
            await client.until_closed()
            if not arguments.json:
                print(f"relay-client {client.about.id} (pid {client.about.pid}) has exited")
        if arguments.json:
            print(as_json(tuple(client.about for client in chosen)))

    return run_with_clients(arguments, stop)
