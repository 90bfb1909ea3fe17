"""`relay-client tensorboard`: waits for a forwarded web server and prints its local URL."""

from __future__ import annotations

import argparse
import asyncio
import logging
from typing import TYPE_CHECKING

from relay_client.cli.common import CLOSING_PORTS, Commands, add_command, run_controlled, run_with_tunnels
from relay_core.values import named

if TYPE_CHECKING:
    from relay_client.agents.tunnels import Tunnels
    from relay_client.ports.local_port import LocalPort

__all__ = ["add_parser"]

logger = logging.getLogger(__name__)


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "tensorboard",
        run,
        summary="open TensorBoard or another web server of a node on this machine",
        description="Waits until an agent forwards the port, prints the URL, and forwards until stopped with Ctrl-C.",
    )
    parser.add_argument(
        "--port", default="6006", metavar="[NODE/]PORT[:LOCAL]", help="port to open (default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Forward the port."""
    from relay_client.ports.local_port import parse_forwards

    with named("--port"):
        (local,) = parse_forwards([arguments.port])
    return run_with_tunnels(arguments, lambda tunnels: _forward_and_print_url(tunnels, local), closing=CLOSING_PORTS)


async def _forward_and_print_url(tunnels: Tunnels, local: LocalPort) -> None:
    """Forward a port until cancelled; print its URL once an agent serves it.

    Args:
        tunnels: The client's tunnels, not yet entered.
        local: The local port and its destination.

    Raises:
        LocalPortInUse: the local port cannot be opened.
        RelayDebugError: the relay or the credentials are unusable.
    """
    from relay_client.ports.forwarder import LOCAL_HOST, Forwarder

    wanted = local.destination
    forwarder = Forwarder(tunnels, [local])

    async def print_url() -> None:
        async with tunnels, forwarder:
            await tunnels.search.wait_for(
                lambda: tunnels.agent_for(wanted),
                lambda error: logger.warning("waiting: %s", tunnels.unreachable_error(wanted, error)),
            )
            tunnels.keep_searching()
            print(f"http://{LOCAL_HOST}:{local.port}/", flush=True)
            await asyncio.Event().wait()

    await run_controlled("tensorboard", tunnels, forwarder, print_url())
