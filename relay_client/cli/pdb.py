"""`relay-client pdb`: the way from the command line to a debug client of one rank."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from relay_client.agents.announcement import State
from relay_client.agents.roster import Destination
from relay_client.agents.tunnels import Tunnels
from relay_client.dap.client import DapClient
from relay_client.pdb import Reached
from relay_client.ui.ranks import format_ranks

__all__ = ["session_of_rank"]

logger = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def session_of_rank(make_tunnels: Callable[[], Awaitable[Tunnels]], rank: int) -> AsyncIterator[Reached]:
    """Connect to the debugger of a rank, as soon as there is such a rank.

    Raises:
        RelayDebugError: on entering: the relay or the credentials are unusable, or somebody else debugs that rank.
    """
    async with await make_tunnels() as tunnels:
        claims = await tunnels.seeker.until(
            lambda: [claim for claim in tunnels.reachable_targets() if claim.target.rank == rank] or None,
            lambda why: logger.info("waiting for %s: %s", format_ranks([rank]), why),
        )
        target = claims[0].target

        async def connect() -> DapClient:
            return DapClient(await tunnels.open(Destination(target.port)))

        async with await connect() as client:
            yield Reached(client, connect, crashed=target.state is State.CRASHED)
