"""`relay-client wait`: blocks a script until ranks are registered or in a given state."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from relay_client.cli.common import INTERRUPTED, Commands, add_command, parse_positive_duration, run_with_tunnels
from relay_client.number_lists import parse_ranks
from relay_client.ui.text import format_ranks
from relay_core.agent_api.announcement import State, TargetInfo
from relay_core.errors import RelayDebugError, TimedOut
from relay_core.program.options import argument_type
from relay_core.values import named

if TYPE_CHECKING:
    from relay_client.agents.tunnels import Tunnels

__all__ = ["STATES", "add_parser", "missing_ranks"]

ANY = "any"
ATTACHED = "attached"
STATES = (ANY, State.WAITING.value, ATTACHED, State.CRASHED.value)

logger = logging.getLogger(__name__)


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "wait",
        run,
        summary="wait until ranks are registered",
        description="Exits with status 0 once all given ranks are registered, or with 14 if the timeout expires first.",
    )
    parser.add_argument("--ranks", required=True, metavar="LIST", help="global ranks, such as 3, 0-7 or 0,3-5")
    parser.add_argument(
        "--state",
        choices=STATES,
        default=ANY,
        help="state to wait for: waiting for a debugger, debugger attached, or held at an exception (default: "
        "%(default)s)",
    )
    parser.add_argument(
        "--timeout",
        type=argument_type(parse_positive_duration),
        default="10m",
        metavar="TIME",
        help="time to wait, such as 90, 90s, 10m or 2h (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Wait, and return the exit status."""
    with named("--ranks"):
        ranks = parse_ranks(arguments.ranks)
    done = False

    async def wait(tunnels: Tunnels) -> None:
        nonlocal done
        await _wait_for_ranks(tunnels, ranks, state=arguments.state, within=arguments.timeout)
        done = True

    run_with_tunnels(arguments, wait)
    return 0 if done else INTERRUPTED


def missing_ranks(ranks: Sequence[int], targets: Sequence[TargetInfo], state: str) -> list[int]:
    """Return the ranks without a target in this state.

    Args:
        ranks: Global ranks.
        targets: All reachable targets.
        state: One of `STATES`; a target can be both crashed and attached.
    """
    found = {target.rank for target in targets if _is_in(target, state)}
    return [rank for rank in ranks if rank not in found]


def _is_in(target: TargetInfo, state: str) -> bool:
    if state == ATTACHED:
        return target.attachment is not None
    return state in {ANY, target.state.value}


async def _wait_for_ranks(tunnels: Tunnels, ranks: Sequence[int], *, state: str, within: float) -> None:
    """Wait until all ranks have a target in a state.

    Raises:
        TimedOut: some ranks have not reached it within `within` seconds.
        RelayDebugError: waiting cannot help.
    """
    from relay_core.compat import TIMEOUT_ERRORS, timeout

    def missing() -> list[int]:
        return missing_ranks(ranks, [claim.target for claim in tunnels.reachable_targets()], state)

    def show_waiting(why: RelayDebugError) -> None:
        logger.info("waiting for %s: %s", format_ranks(missing()), why.sentence)

    async with tunnels:
        try:
            async with timeout(within):
                await tunnels.search.wait_for(lambda: None if missing() else True, show_waiting)
        except TIMEOUT_ERRORS:
            raise TimedOut(
                f"{format_ranks(missing())} did not {_verb_for(state)} within {within:g} s",
                hint="run 'relay-client targets' to see what is registered",
            ) from None


def _verb_for(state: str) -> str:
    return "register" if state == ANY else f"become '{state}'"
