"""Attaches to a rank: finds it, starts its debugger, and opens a local port that leads to it."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence

from relay_client.agents.event_log import describe_state, name_with_node
from relay_client.agents.requests import send_request
from relay_client.agents.roster import Claim, Destination
from relay_client.agents.tunnels import Tunnels, blocking_holder
from relay_client.ports.forwarder import Forwarder
from relay_client.ports.local_port import LocalPort
from relay_client.ui.text import format_ranks
from relay_core.agent_api.announcement import State
from relay_core.agent_api.requests import Wake
from relay_core.errors import ConnectionLost, NoListener, RelayDebugError, UsageError
from relay_core.value_parsers import format_ranges

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


def registered_targets(tunnels: Tunnels) -> dict[int, int | None]:
    """Return the ranks that can be reached, by logical port; None for a target without a rank."""
    return {claim.target.port: claim.target.rank for claim in tunnels.reachable_targets()}


def waiting_for_rank(rank: int, registered: Mapping[int, int | None], why: RelayDebugError, *, command: str) -> str:
    """Return what is shown while a command waits for a rank: `waiting for rank 9; registered: ranks 0-1`.

    Args:
        rank: The rank that the command is waiting for.
        registered: The ranks that can be reached, by logical port; None for a target without a rank.
        why: Why the last search did not find the rank.
        command: The waiting command, such as "attach"; it appears in the hint if the rank's number is a logical port.
    """
    ranks = {each for each in registered.values() if each is not None}
    if not ranks or not isinstance(why, NoListener):
        return f"waiting for {format_ranks([rank])}: {why.sentence}"
    text = f"waiting for {format_ranks([rank])}; registered: {format_ranks(ranks)}"
    meant = registered.get(rank)
    if meant is None:
        return text
    run = f"to attach to that rank, run: relay-client {command} {meant}"
    return f"{text}. hint: {rank} is the port of {format_ranks([meant])}; {run}"


def waiting_for_port(port: int, registered: Collection[int], why: RelayDebugError) -> str:
    """Return what is shown while a command waits for a logical port: `waiting for port 5680; registered: 5678-5679`.

    Args:
        port: The port that the command is waiting for.
        registered: The logical ports that can be reached.
        why: Why the last search did not find the port.
    """
    if registered and isinstance(why, NoListener):
        return f"waiting for port {port}; registered: {format_ranges(sorted(registered))}"
    return f"waiting for port {port}: {why.sentence}"


def single_claim(claims: Sequence[Claim], *, hint: str = "") -> Claim:
    """Return the only claim.

    Args:
        claims: At least one claim; all claims are for the same rank.
        hint: What the user can do if there are several claims; by default, choose one of them by its port.

    Raises:
        UsageError: several jobs have a target with this rank.
    """
    if len(claims) > 1:
        where = " and ".join(f"port {claim.target.port} ({claim.owner})" for claim in claims)
        hint = hint or f"choose one by its port, as in 'relay-client --ports {claims[0].target.port}'"
        raise UsageError(f"{claims[0].target.label} exists in {len(claims)} jobs: {where}", hint=hint)
    return claims[0]


async def open_rank_port(forwarder: Forwarder, claim: Claim, port: int | None) -> LocalPort:
    """Open a local port that leads to a target.

    Args:
        forwarder: The forwarder that opens the port.
        claim: The target.
        port: The local port; None for the number of the logical port.

    Raises:
        LocalPortInUse, UsageError: the port cannot be opened.
    """
    local = LocalPort(port or claim.target.port, Destination(claim.target.port))
    await forwarder.open(local)
    return local


def how_to_attach(claim: Claim, port: int) -> str:
    """Return the log line about an open port: `press F5 to debug rank 0 on node-1 on port 5678`, or who holds it."""
    target, name = claim.target, name_with_node(claim.target, claim.agent)
    if target.attachment is None:
        return f"press F5 to debug {name} on port {port}"
    state = describe_state(target, time.time())
    verb = "has" if target.state is State.CRASHED else "is"
    how = f"press F5 to attach to port {port}"
    if blocking_holder(target) is None:
        how += f" and take over, or run 'relay-client release {chosen(target.rank, target.port)}' to let it continue"
    else:
        how += f" once {target.label} is free"
    return f"{name} {verb} {state}; {how}"


def chosen(rank: int | None, port: int | None) -> str:
    """Return the arguments that select a target on the command line: `3`, or `--port 5678` if it has no rank."""
    return f"--port {port}" if rank is None else str(rank)


async def wake(tunnels: Tunnels, claim: Claim) -> None:
    """Start debugpy in the target now, so that F5 does not have to wait for it.

    Raises:
        RelayDebugError: the process cannot be debugged; the error contains the agent's reason.
    """
    try:
        await send_request(tunnels, claim.agent.id, Wake(claim.target.port), within=WAKE_TIMEOUT)
    except ConnectionLost as lost:  # not an error: the first bytes from the editor also wake the target
        logger.warning("the debugger of %s could not be started in advance: %s", claim.target.label, lost.sentence)
