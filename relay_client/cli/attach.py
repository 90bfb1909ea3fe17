"""`relay-client attach`: wakes the debuggers of some ranks and opens their local ports."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from relay_client.cli.common import Commands, add_command, add_prefetch_option, run_with_tunnels
from relay_client.cli.rank_ranges import parse_ranks
from relay_client.ui.text import format_ranks
from relay_core.errors import ConnectionLost, UsageError
from relay_core.program.options import argument_type
from relay_core.values import named, parse_port

if TYPE_CHECKING:
    from relay_client.agents.roster import Claim
    from relay_client.agents.tunnels import Tunnels

__all__ = ["add_parser"]

WAKE_TIMEOUT = 60.0
"""Seconds; the agent gives a process 30 s to start debugpy."""

logger = logging.getLogger(__name__)


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "attach",
        run,
        summary="wake the debugger of a running process and open its port",
        description="Starts debugpy in running processes and forwards their ports until stopped with Ctrl-C.",
    )
    parser.add_argument(
        "--rank", action="append", required=True, metavar="LIST", help="global rank, or several as in 4-5; repeatable"
    )
    parser.add_argument(
        "--port",
        type=argument_type(parse_port),
        default=None,
        metavar="PORT",
        help="local port (default: the rank's logical port)",
    )
    add_prefetch_option(parser, default=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Attach to the ranks."""
    with named("--rank"):
        ranks = parse_ranks(",".join(arguments.rank))
    return run_with_tunnels(arguments, lambda tunnels: _attach_all(tunnels, ranks, port=arguments.port))


async def _attach_all(tunnels: Tunnels, ranks: Sequence[int], *, port: int | None) -> None:
    """Open a local port for each rank, as soon as it is there, until cancelled.

    Args:
        tunnels: Not yet entered.
        ranks: Global ranks.
        port: Local port of the one rank that is named; by default each rank's logical port.

    Raises:
        UsageError: a local port is given for several ranks, or a rank exists in several jobs.
        LocalPortInUse: a local port cannot be had.
        RelayDebugError: the relay or the credentials are unusable.
    """
    if port is not None and len(ranks) > 1:
        raise UsageError("--port is for one rank", hint="leave it out, or attach to one rank")
    from relay_client.ui.live_table import live_table
    from relay_core.net.tasks import run_together

    async with tunnels:
        tunnels.keep_looking()
        async with live_table(tunnels.roster):
            await run_together(*(_attach(tunnels, rank, port) for rank in ranks))


async def _attach(tunnels: Tunnels, rank: int, port: int | None) -> None:
    """Serve one rank until cancelled.

    Raises:
        RelayDebugError: that is impossible.
    """
    from relay_client.agents.roster import Destination
    from relay_client.ports.forwarder import LOCAL_HOST, Forwarder
    from relay_client.ports.local_port import LocalPort

    claims = await tunnels.seeker.until(
        lambda: [claim for claim in tunnels.reachable_targets() if claim.target.rank == rank] or None,
        lambda why: logger.info("waiting for %s: %s", format_ranks([rank]), why),
    )
    claim = _the_only(claims)
    target = claim.target
    local = LocalPort(port or target.port, Destination(target.port))
    async with Forwarder(tunnels, [local]):
        await _wake(tunnels, claim)
        logger.info(
            "F5 on port %d attaches to %s on %s (%s:%d)",
            local.port,
            target.label,
            claim.agent.host,
            LOCAL_HOST,
            local.port,
        )
        await asyncio.Event().wait()


def _the_only(claims: Sequence[Claim]) -> Claim:
    """Return the target that has a rank.

    Raises:
        UsageError: several jobs have one.
    """
    if len(claims) > 1:
        where = " and ".join(f"port {claim.target.port} ({claim.owner})" for claim in claims)
        raise UsageError(f"{claims[0].target.label} exists {len(claims)} times: {where}", hint="use --ports instead")
    return claims[0]


async def _wake(tunnels: Tunnels, claim: Claim) -> None:
    """Have debugpy started now, so that F5 need not wait for it.

    Raises:
        RelayDebugError: the process cannot be debugged; the agent's sentence.
    """
    from relay_client.agents.requests import ask
    from relay_core.agent_api.requests import Wake

    try:
        await ask(tunnels, claim.agent.id, Wake(claim.target.port), within=WAKE_TIMEOUT)
    except ConnectionLost as lost:  # the first bytes of the debugger wake it as well
        logger.warning("%s could not be woken beforehand: %s", claim.target.label, lost.sentence)
