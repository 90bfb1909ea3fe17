"""Attaches to a rank: finds it, starts its debugger, and opens a local port that leads to it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from relay_client.agents.requests import send_request
from relay_client.agents.roster import Claim, Destination
from relay_client.agents.tunnels import Tunnels
from relay_client.ports.forwarder import Forwarder
from relay_client.ports.local_port import LocalPort
from relay_core.agent_api.requests import Wake
from relay_core.errors import ConnectionLost, UsageError

__all__ = ["WAKE_TIMEOUT", "claims_of", "open_rank_port", "single_claim", "wake"]

WAKE_TIMEOUT = 60.0
"""Seconds to wait for the agent, which allows a process 30 s to start debugpy."""

logger = logging.getLogger(__name__)


def claims_of(tunnels: Tunnels, *, rank: int | None = None, port: int | None = None) -> list[Claim]:
    """Return the reachable targets with this rank, or with this logical port."""
    return [
        claim
        for claim in tunnels.reachable_targets()
        if (claim.target.port == port if port is not None else claim.target.rank == rank)
    ]


def single_claim(claims: Sequence[Claim], *, hint: str = "use --ports instead") -> Claim:
    """Return the only claim.

    Args:
        claims: At least one, all of the same rank.
        hint: What the user can do if there are several.

    Raises:
        UsageError: several jobs have a target with this rank.
    """
    if len(claims) > 1:
        where = " and ".join(f"port {claim.target.port} ({claim.owner})" for claim in claims)
        raise UsageError(f"{claims[0].target.label} exists in {len(claims)} jobs: {where}", hint=hint)
    return claims[0]


async def open_rank_port(forwarder: Forwarder, claim: Claim, port: int | None) -> LocalPort:
    """Open a local port that leads to a target.

    Args:
        forwarder: Opens it.
        claim: The target.
        port: The local port; by default the logical port.

    Raises:
        LocalPortInUse, UsageError: it cannot be opened.
    """
    local = LocalPort(port or claim.target.port, Destination(claim.target.port))
    await forwarder.open(local)
    return local


async def wake(tunnels: Tunnels, claim: Claim) -> None:
    """Start debugpy in the target now, so that F5 does not have to wait for it.

    Raises:
        RelayDebugError: the process cannot be debugged; the agent sent the reason.
    """
    try:
        await send_request(tunnels, claim.agent.id, Wake(claim.target.port), within=WAKE_TIMEOUT)
    except ConnectionLost as lost:  # not an error: the first bytes from the editor also wake the target
        logger.warning("the debugger of %s could not be started in advance: %s", claim.target.label, lost.sentence)
