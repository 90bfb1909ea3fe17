"""`relay-client wait`: blocks a script until ranks are registered or in a given state.

A running relay-client on the same hybrid connection has tunnels to all agents, so the command follows its state.
Without one, the command searches for the agents itself.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from relay_client.cli.common import PORTS, Commands, add_command, add_timeout, make_tunnels, run_for_result
from relay_client.cli.inspection.asking import find_client
from relay_client.cli.inspection.verb_command import PORTS_HELP
from relay_client.cli.running import add_client
from relay_client.ranks.record import Target, target_record
from relay_client.ranks.view import Kind
from relay_client.ui.text import exact_duration, format_ranks, parse_chosen_ports, parse_ranks
from relay_core.agent_api.announcement import State
from relay_core.agent_api.members import selects_port
from relay_core.errors import ConnectionLost, NoListener, RelayDebugError, TimedOut
from relay_core.exit_codes import INTERRUPTED
from relay_core.value_parsers import named

if TYPE_CHECKING:
    from relay_client.agents.roster import Claim
    from relay_client.control.client import ControlClient
    from relay_client.control.state import Status

ANY = "any"
ATTACHED = "attached"
STATES = {
    ANY: "{} to register",
    State.WAITING.value: "{} to wait for a debugger",
    ATTACHED: "a debugger to attach to {}",
    State.CRASHED.value: "{} to crash",
}
"""What is awaited, by the state for which a user can wait, with a placeholder for the ranks."""

logger = logging.getLogger(__name__)


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "wait",
        run,
        summary="wait until ranks are registered",
        description="Waits until all given ranks are registered or, with --state, are in the given state. Exits with "
        "status 0 as soon as they are, or with status 14 if the timeout expires first.",
    )
    parser.add_argument("--ranks", required=True, metavar="LIST", help="global ranks, such as 3, 0-7 or 0,3-5")
    parser.add_argument(*PORTS, default="", metavar="LIST", help=PORTS_HELP)
    parser.add_argument(
        "--state",
        choices=tuple(STATES),
        default=ANY,
        help="state to wait for: any, waiting (for a debugger), attached (a debugger is attached) or crashed (held at "
        "an exception) (default: %(default)s)",
    )
    add_timeout(parser, "time to wait, such as 90, 90s, 10m or 2h (default: %(default)s)")
    add_client(parser)


def run(arguments: argparse.Namespace) -> int:
    """Wait, and return the exit status."""
    with named("--ranks"):
        ranks = parse_ranks(arguments.ranks)
    with named("--ports"):
        parse_chosen_ports(arguments.ports)
    are_reached = run_for_result(_wait_for_ranks(arguments, ranks, arguments.state, arguments.timeout))
    return 0 if are_reached else INTERRUPTED


def missing_ranks(ranks: Sequence[int], targets: Sequence[Target], state: str) -> list[int]:
    """Return the ranks without a target in this state.

    Args:
        ranks: Global ranks.
        targets: All reachable targets.
        state: One of `STATES`; a target can be both crashed and attached.
    """
    found = {target.rank for target in targets if _is_in(target, state)}
    return [rank for rank in ranks if rank not in found]


def _is_in(target: Target, state: str) -> bool:
    return target.holder is not None if state == ATTACHED else state in {ANY, target.state}


def waiting_text(ranks: Sequence[int], targets: Sequence[Target], state: str, why: RelayDebugError) -> str:
    """Return what is shown while ranks are awaited: `waiting for rank 0 to crash; rank 0 running`.

    Args:
        ranks: The ranks that have not reached the state.
        targets: All reachable targets.
        state: One of `STATES`.
        why: Why the last search did not find more.
    """
    text = f"waiting for {STATES[state].format(format_ranks(ranks))}"
    registered = {target.rank for target in targets if target.rank is not None}
    if not registered or not isinstance(why, NoListener):
        return f"{text}: {why.sentence}"
    if state == ANY:
        return f"{text}; registered: {format_ranks(registered)}"
    return f"{text}; {_present(ranks, targets)}"


def _present(ranks: Sequence[int], targets: Sequence[Target]) -> str:
    """Return what ranks are doing, as in `ranks 0-2 running, rank 3 not registered`."""
    found: dict[str, set[int]] = {}
    for rank in ranks:
        for condition in [_condition(target) for target in targets if target.rank == rank] or ["not registered"]:
            found.setdefault(condition, set()).add(rank)
    return ", ".join(f"{format_ranks(those)} {condition}" for condition, those in found.items())


def _condition(target: Target) -> str:
    return f"held by {target.holder}" if target.holder is not None else target.text or "registered"


async def _wait_for_ranks(arguments: argparse.Namespace, ranks: Sequence[int], state: str, within: float) -> bool:
    """Return True once all ranks have a target in a state.

    Raises:
        TimedOut: some ranks did not reach the state within `within` seconds.
        RelayDebugError: a permanent error occurred, such as invalid credentials.
    """
    from relay_core.compat import TIMEOUT_ERRORS, timeout

    targets: list[Target] = []
    obstacle = ""

    def missing() -> list[int]:
        return missing_ranks(ranks, targets, state)

    def is_reached(found: Iterable[Target]) -> bool:
        targets[:] = (target for target in found if selects_port(arguments.ports, target.port))
        return not missing()

    def describe(why: RelayDebugError) -> str:
        nonlocal obstacle
        obstacle = "" if isinstance(why, NoListener) else f": {why.sentence}"
        return waiting_text(missing(), targets, state, why)

    def show_waiting(why: RelayDebugError) -> None:
        logger.info("%s", describe(why))

    async with contextlib.AsyncExitStack() as stack:
        client = await find_client(arguments, stack)
        tunnels = None if client else await stack.enter_async_context(await make_tunnels(arguments))
        try:
            async with timeout(within):
                if client is not None:
                    await _wait_in(client, is_reached, missing, describe)
                if tunnels is not None:
                    claims, search = tunnels.reachable_targets, tunnels.search
                    await search.wait_for(lambda: is_reached(map(_record, claims())) or None, show_waiting, describe)
        except TIMEOUT_ERRORS:
            verb = "register" if state == ANY else f"become '{state}'"
            raise TimedOut(
                f"{format_ranks(missing())} did not {verb} within {exact_duration(within)}{obstacle}",
                hint="run 'relay-client targets' to see what is registered",
            ) from None
    return True


async def _wait_in(
    client: ControlClient,
    is_reached: Callable[[Iterable[Target]], bool],
    missing: Callable[[], list[int]],
    describe: Callable[[RelayDebugError], str],
) -> None:
    """Wait until a running relay-client has the targets; log what is awaited each time that its description changes.

    Raises:
        ClientExited: the relay-client has exited.
    """
    from relay_client.control.client import ClientExited
    from relay_client.control.messages import GetStatus, Subscribe

    status, shown = await client.request(Subscribe()), ""
    events = client.events()
    while not is_reached(_reachable(status)):
        if (text := describe(_why_missing(status, missing(), client.about.hc))) != shown:
            logger.info("%s", text)
        shown = text
        if await anext(events, None) is None:
            raise ClientExited("the relay-client has exited")
        status = await client.request(GetStatus())


def _why_missing(status: Status, ranks: Sequence[int], hc: str) -> RelayDebugError:
    """Return why ranks are not found: a node that has one of them, to judge by the last announcement, is away."""
    for node in status.nodes:
        if node.link != "connected" and any(target.rank in ranks for target in node.targets):
            why = f": {node.link_reason}" if node.link_reason else ""
            return ConnectionLost(f"the tunnel to {node.label} is {node.link}{why}")
    return NoListener(f"no agent is listening on '{hc}'")


def _record(claim: Claim) -> Target:
    return target_record(claim.target)


def _reachable(status: Status) -> list[Target]:
    targets = (target for node in status.nodes if node.link == "connected" for target in node.targets)
    return [target for target in targets if target.kind != Kind.UNREACHABLE.value]
