"""Attaches to a rank: finds it, starts its debugger, and opens a local port that leads to it."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence

from relay_client.agents.event_log import describe_state, name_with_node
from relay_client.agents.requests import send_request
from relay_client.agents.roster import Claim, Destination
from relay_client.agents.tunnels import Tunnels, blocking_holder, may_register, no_process_error
from relay_client.ports.forwarder import Forwarder
from relay_client.ports.local_port import LocalPort
from relay_client.ranks.record import Target
from relay_client.ui.text import LISTING, exact_duration, format_ports, format_ranks
from relay_core.agent_api.announcement import State, TargetInfo
from relay_core.agent_api.requests import Wake
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConnectionLost, NoListener, RelayDebugError, TimedOut, UsageError

WAKE_TIMEOUT = 60.0
"""Seconds to wait for the agent, which allows a process 30 s to start debugpy."""

logger = logging.getLogger(__name__)


def claims_of(tunnels: Tunnels, *, rank: int | None = None, port: int | None = None) -> list[Claim]:
    """Return the reachable targets with this rank, or with this logical port."""
    return [claim for claim in tunnels.reachable_targets() if is_wanted(claim.target, rank, port)]


def is_wanted(target: TargetInfo | Target, rank: int | None, port: int | None) -> bool:
    """Return whether a target has this logical port or, if none is given, this rank."""
    return target.port == port if port is not None else target.rank == rank


def missing_error(tunnels: Tunnels, rank: int | None, port: int | None, error: RelayDebugError) -> RelayDebugError:
    """Return why the search for a rank or a logical port failed, given its error: its agent may be known, but away."""
    for claim in tunnels.roster.targets(time.time()):
        wanted = Destination(claim.target.port)
        if is_wanted(claim.target, rank, port) and tunnels.agent_for(wanted) is None:
            return tunnels.unreachable_error(wanted, error)
    return error


async def wait_for_claims(
    tunnels: Tunnels, rank: int, port: int | None, show: Callable[[str], None], *, within: float
) -> list[Claim]:
    """Return the reachable targets with this rank, or with this logical port, once there is one.

    Args:
        tunnels: The client's tunnels.
        rank: The rank; not used if there is a port.
        port: The logical port.
        show: Called with what is awaited, each time that its description changes.
        within: Timeout in seconds.

    Raises:
        NoListener: no job can have such a process.
        TimedOut: no such process has registered in time.
    """
    reason = ""

    def describe(why: RelayDebugError) -> str:
        nonlocal reason
        targets = [target for agent in tunnels.roster for target in agent.targets]
        reason = missing_reason(rank, port, targets, missing_error(tunnels, rank, port, why))
        return waiting_text(rank, port, reason, within=within)

    def find() -> list[Claim] | None:
        return claims_of(tunnels, rank=rank, port=port) or None

    async with registration_limit(rank, port, within, lambda: reason):
        claims = await tunnels.search.wait_for(find, lambda why: show(describe(why)), describe)
        with contextlib.suppress(RelayDebugError):  # another job may have the rank, or an earlier claim to the port
            await tunnels.discover_all()
        return find() or claims


@contextlib.asynccontextmanager
async def registration_limit(
    rank: int, port: int | None, within: float, reason: Callable[[], str] = str
) -> AsyncIterator[None]:
    """Raise TimedOut if the block, which waits for a rank or a logical port, takes longer than `within` seconds."""
    try:
        async with timeout(within):
            yield
    except TIMEOUT_ERRORS:
        sentence = f"{process_name(rank, port)} did not register within {exact_duration(within)}{reason()}"
        raise TimedOut(sentence, hint=LISTING) from None


def waiting_text(rank: int, port: int | None, reason: str, *, within: float) -> str:
    """Return what is shown while a rank or a logical port is awaited for `within` seconds."""
    return f"waiting up to {exact_duration(within)} for {process_name(rank, port)}{reason}; press Ctrl-C to stop"


def missing_reason(rank: int, port: int | None, targets: Collection[TargetInfo | Target], why: RelayDebugError) -> str:
    """Return why a rank or a logical port is awaited, as the end of a sentence: the error, or what is registered.

    Args:
        rank: The rank; not used if there is a port.
        port: The logical port.
        targets: The registered processes.
        why: Why the last search did not find the process.

    Raises:
        NoListener: no job can have such a process.
    """
    if not may_register(targets, rank, port):
        raise no_process_error(targets, [rank], port)
    ranks, ports = {target.rank for target in targets if target.rank is not None}, {target.port for target in targets}
    is_known = port in ports if port is not None else rank in ranks  # but its node cannot be reached
    if ports and not is_known and isinstance(why, NoListener):
        return f"; registered: {format_ranks(ranks) if port is None and ranks else format_ports(ports)}"
    return f": {why.sentence}"


def process_name(rank: int | None, port: int | None) -> str:
    """Return what users call the process with a rank or, if it is given, with a logical port."""
    return f"rank {rank}" if port is None else f"port {port}"


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
