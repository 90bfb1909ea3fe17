"""`relay-client tensorboard`: waits for a forwarded web server and prints its local URL."""

from __future__ import annotations

import argparse
import asyncio
import logging
from typing import TYPE_CHECKING

from relay_client.cli.common import (
    CLOSING_PORTS,
    Commands,
    add_command,
    add_quiet,
    parse_positive_duration,
    run_controlled,
    run_with_tunnels,
)
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import RelayDebugError, TimedOut
from relay_core.program.options import argument_type
from relay_core.values import named

if TYPE_CHECKING:
    from relay_client.agents.roster import Destination
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
    add_quiet(parser, default=argparse.SUPPRESS)
    parser.set_defaults(keeps_running=True)
    parser.add_argument(
        "--timeout",
        type=argument_type(parse_positive_duration),
        default="10m",
        metavar="TIME",
        help="time to wait for an agent that forwards the port, such as 90s, 10m or 2h (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Forward the port."""
    from relay_client.ports.local_port import parse_forwards

    with named("--port"):
        (local,) = parse_forwards([arguments.port])

    async def forward(tunnels: Tunnels) -> None:
        await _forward_and_print_url(tunnels, local, arguments.timeout)

    return run_with_tunnels(arguments, forward, closing=CLOSING_PORTS)


async def _forward_and_print_url(tunnels: Tunnels, local: LocalPort, within: float) -> None:
    """Forward a port until cancelled; print its URL once an agent serves it.

    Args:
        tunnels: The client's tunnels, not yet entered.
        local: The local port and its destination.
        within: Seconds to wait for the agent.

    Raises:
        TimedOut: no agent has served the port within this time.
        LocalPortInUse: the local port cannot be opened.
        RelayDebugError: the relay or the credentials are unusable.
    """
    from relay_client.ports.forwarder import LOCAL_HOST, Forwarder

    wanted = local.destination
    reason: RelayDebugError | None = None
    forwarder = Forwarder(tunnels, [local])

    def show_waiting(error: RelayDebugError) -> None:
        nonlocal reason
        reason = tunnels.unreachable_error(wanted, error)
        logger.warning("waiting: %s", reason)

    async def print_url() -> None:
        async with tunnels, forwarder:
            try:
                async with timeout(within):
                    await tunnels.search.wait_for(lambda: tunnels.agent_for(wanted), show_waiting)
            except TIMEOUT_ERRORS:
                raise _timed_out(wanted, within, reason) from None
            tunnels.keep_searching()
            print(f"http://{LOCAL_HOST}:{local.port}/", flush=True)
            await asyncio.Event().wait()

    await run_controlled("tensorboard", tunnels, forwarder, print_url())


def _timed_out(wanted: Destination, within: float, reason: RelayDebugError | None) -> TimedOut:
    why, hint = (reason.sentence, reason.hint) if reason else ("the search for agents has not finished", "")
    return TimedOut(f"{wanted} was not available within {within:g} s: {why}", hint=hint)
