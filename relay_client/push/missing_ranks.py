"""Waits for ranks that are not found, because new code in only part of a job can break its collective operations."""

from __future__ import annotations

import logging
from collections.abc import Collection

from relay_client.agents.roster import AbsentRank, absent_ranks
from relay_client.agents.tunnels import Tunnels
from relay_client.ui.text import format_ranks
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import TimedOut
from relay_core.value_parsers import format_ranges

__all__ = ["NOTHING_CHANGED", "SEARCH_SECONDS", "until_found"]

SEARCH_SECONDS = 30.0
"""Seconds to search for ranks; an agent that has just started or has lost its connection is listening within a few
seconds."""
NOTHING_CHANGED = "nothing was changed in any rank"

logger = logging.getLogger(__name__)


async def until_found(tunnels: Tunnels, ranks: Collection[int] | None) -> None:
    """Wait up to `SEARCH_SECONDS` until all chosen ranks have a registered process, except those that have ended.

    Args:
        tunnels: The client's tunnels.
        ranks: The chosen ranks; None for all ranks of all jobs that are found.

    Raises:
        TimedOut: some ranks are not found.
        RelayDebugError: a permanent error occurred, such as invalid credentials.
    """

    def missing() -> list[AbsentRank]:
        return [absent for absent in absent_ranks(tunnels.roster, ranks) if not absent.has_ended]

    if awaited := [absent.rank for absent in missing() if absent.may_register]:
        which = f"{format_ranks(awaited)}, which {'are' if len(awaited) > 1 else 'is'} not registered"
        logger.warning("waiting up to %g s for %s", SEARCH_SECONDS, which)
        try:
            async with timeout(SEARCH_SECONDS):
                await tunnels.search.wait_for(
                    lambda: None if any(absent.may_register for absent in missing()) else True, lambda _why: None
                )
        except TIMEOUT_ERRORS:
            pass  # reported below
    if missing():
        raise _not_found(tunnels, {absent.rank for absent in missing()}, ranks)


def _not_found(tunnels: Tunnels, missing: Collection[int], ranks: Collection[int] | None) -> TimedOut:
    registered = {target.rank for agent in tunnels.roster for target in agent.targets if target.rank is not None}
    others = registered.difference(missing).intersection(registered if ranks is None else ranks)
    hint = "run 'relay-client targets' to list the registered processes"
    if others:
        hint = f"add --ranks {format_ranges(sorted(others))} to replace the code in the other ranks only"
    verb = "were" if len(missing) > 1 else "was"
    return TimedOut(f"{format_ranks(missing)} {verb} not found; {NOTHING_CHANGED}", hint=hint)
