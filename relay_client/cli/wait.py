"""`relay-client wait`: for scripts that go on when all ranks are there."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from relay_client.agents.announcement import State, TargetInfo
from relay_client.agents.tunnels import Tunnels
from relay_client.ui.ranks import format_ranks
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import RelayDebugError, TimedOut

__all__ = ["STATES", "missing_ranks", "wait_for_ranks"]

ANY = "any"
STATES = (ANY, State.WAITING.value, State.ATTACHED.value, State.CRASHED.value)

logger = logging.getLogger(__name__)


def missing_ranks(ranks: Sequence[int], targets: Sequence[TargetInfo], state: str) -> list[int]:
    """Return the ranks that no target in this state has.

    Args:
        ranks: Global ranks.
        targets: All that are known.
        state: One of `STATES`.
    """
    there = {target.rank for target in targets if state == ANY or _state(target) == state}
    return [rank for rank in ranks if rank not in there]


def _state(target: TargetInfo) -> str:
    """Return its state; a debugger that looks at a crash is attached as well, and the crash is what counts."""
    held = target.holder and target.state is not State.CRASHED
    return State.ATTACHED.value if held else target.state.value


async def wait_for_ranks(tunnels: Tunnels, ranks: Sequence[int], *, state: str, within: float) -> None:
    """Wait until all ranks are there, in some state.

    Raises:
        TimedOut: some are not, after `within` seconds.
        RelayDebugError: waiting cannot help.
    """

    def missing() -> list[int]:
        return missing_ranks(ranks, [claim.target for claim in tunnels.reachable_targets()], state)

    def show_waiting(why: RelayDebugError) -> None:
        logger.info("waiting for %s: %s", format_ranks(missing()), why.sentence)

    async with tunnels:
        try:
            async with timeout(within):
                await tunnels.seeker.until(lambda: None if missing() else True, show_waiting)
        except TIMEOUT_ERRORS:
            raise TimedOut(
                f"{format_ranks(missing())} did not {_deed(state)} within {within:g} s",
                hint="see what is there with 'relay-client targets'",
            ) from None


def _deed(state: str) -> str:
    return "register" if state == ANY else f"become '{state}'"
