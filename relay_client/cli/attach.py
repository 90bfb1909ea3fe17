"""`relay-client attach`: starts the debuggers of some ranks and opens their local ports."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from relay_client.cli.common import (
    Commands,
    add_allow_terminate_option,
    add_command,
    add_prefetch_option,
    run_with_tunnels,
)
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
        summary="start the debugger of a running process and open its port",
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
    add_allow_terminate_option(parser, default=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Attach to the ranks."""
    with named("--rank"):
        ranks = parse_ranks(",".join(arguments.rank))
    return run_with_tunnels(
        arguments,
        lambda tunnels: _attach_all(tunnels, ranks, port=arguments.port, allow_terminate=arguments.allow_terminate),
    )


async def _attach_all(
    tunnels: Tunnels, ranks: Sequence[int], *, port: int | None, allow_terminate: bool = False
) -> None:
    """Open a local port for each rank once it has registered, until cancelled.

    Args:
        tunnels: The client's tunnels, not yet entered.
        ranks: Global ranks.
        port: Local port, for a single rank; by default each rank's logical port.
        allow_terminate: Whether an editor may end the job.

    Raises:
        UsageError: a local port is given for several ranks, or a rank exists in several jobs.
        LocalPortInUse: a local port cannot be opened.
        RelayDebugError: the relay or the credentials are unusable.
    """
    if port is not None and len(ranks) > 1:
        raise UsageError("--port requires a single rank", hint="leave it out, or attach to one rank")
    from relay_client.ui.live_table import live_table
    from relay_core.net.tasks import run_together

    async with tunnels:
        tunnels.keep_searching()
        async with live_table(tunnels.roster):
            await run_together(*(_attach(tunnels, rank, port, allow_terminate=allow_terminate) for rank in ranks))


async def _attach(tunnels: Tunnels, rank: int, port: int | None, *, allow_terminate: bool) -> None:
    """Forward the port of one rank until cancelled.

    Raises:
        RelayDebugError: the rank cannot be debugged, or its local port cannot be opened.
    """
    from relay_client.agents.roster import Destination
    from relay_client.ports.forwarder import LOCAL_HOST, Forwarder
    from relay_client.ports.local_port import LocalPort

    claims = await tunnels.search.wait_for(
        lambda: [claim for claim in tunnels.reachable_targets() if claim.target.rank == rank] or None,
        lambda why: logger.info("waiting for %s: %s", format_ranks([rank]), why),
    )
    claim = _single(claims)
    target = claim.target
    local = LocalPort(port or target.port, Destination(target.port))
    async with Forwarder(tunnels, [local], allow_terminate=allow_terminate):
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


def _single(claims: Sequence[Claim]) -> Claim:
    """Return the only claim.

    Raises:
        UsageError: several jobs have a target with this rank.
    """
    if len(claims) > 1:
        where = " and ".join(f"port {claim.target.port} ({claim.owner})" for claim in claims)
        raise UsageError(f"{claims[0].target.label} exists in {len(claims)} jobs: {where}", hint="use --ports instead")
    return claims[0]


async def _wake(tunnels: Tunnels, claim: Claim) -> None:
    """Start debugpy in the target now, so that F5 does not have to wait for it.

    Raises:
        RelayDebugError: the process cannot be debugged, for the reason that the agent gives.
    """
    from relay_client.agents.requests import send_request
    from relay_core.agent_api.requests import Wake

    try:
        await send_request(tunnels, claim.agent.id, Wake(claim.target.port), within=WAKE_TIMEOUT)
    except ConnectionLost as lost:  # not an error: the first bytes of the editor also wake it
        logger.warning("%s could not be woken in advance: %s", claim.target.label, lost.sentence)
