"""`relay-client pdb`: debugs one rank at a command prompt."""

from __future__ import annotations

import argparse
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from relay_client.cli.common import Commands, add_command, make_tunnels, quiet_logging

if TYPE_CHECKING:
    from relay_client.agents.tunnels import Tunnels
    from relay_client.dap.client import DapClient
    from relay_client.pdb import DebugConnection

__all__ = ["add_parser"]

logger = logging.getLogger(__name__)


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "pdb",
        run,
        summary="debug a rank at a prompt, without an editor",
        description="Attaches to a rank, pauses it and accepts pdb commands; the job continues when you quit.",
    )
    parser.add_argument("--rank", type=int, default=0, metavar="RANK", help="global rank (default: 0)")
    parser.add_argument(
        "--no-stop",
        action="store_true",
        default=False,
        help="do not pause on attaching; run until a breakpoint or Ctrl-C",
    )
    parser.add_argument(
        "-b",
        "--break",
        dest="breakpoints",
        action="append",
        default=[],
        metavar="FILE:LINE",
        help="set a breakpoint; repeatable",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the prompt until the user quits."""
    from relay_client.pdb import run_pdb

    quiet_logging(arguments)
    return run_pdb(
        _session_of_rank(lambda: make_tunnels(arguments), arguments.rank),
        title=f"rank {arguments.rank}",
        stop=not arguments.no_stop,
        breakpoints=arguments.breakpoints,
    )


@contextlib.asynccontextmanager
async def _session_of_rank(
    connect_to_relay: Callable[[], Awaitable[Tunnels]], rank: int
) -> AsyncIterator[DebugConnection]:
    """Connect to the debugger of a rank once it has registered.

    Raises:
        RelayDebugError: on entering: the relay or the credentials are unusable, or another user debugs that rank.
    """
    from relay_client.agents.roster import Destination
    from relay_client.dap.client import DapClient
    from relay_client.pdb import DebugConnection
    from relay_client.ports.rank_port import claims_of, single_claim
    from relay_client.ui.text import format_ranks
    from relay_core.agent_api.announcement import State

    async with await connect_to_relay() as tunnels:
        claims = await tunnels.search.wait_for(
            lambda: claims_of(tunnels, rank=rank) or None,
            lambda why: logger.info("waiting for %s: %s", format_ranks([rank]), why),
        )
        claim = single_claim(claims, hint="stop the other jobs, or use relay-client --ports and an editor")
        target = claim.target

        async def connect() -> DapClient:
            return DapClient(await tunnels.open(Destination(target.port)))

        async with await connect() as client:
            is_crashed = target.state is State.CRASHED
            yield DebugConnection(client, connect, crashed=is_crashed, cwd=target.cwd or claim.agent.cwd)
