"""Retries a refused connection for as long as a newly assigned Azure role of the identity may still be propagating."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable

from relay_core.errors import RelayDebugError
from relay_core.hyco.backoff import Backoff, NewRoleGrace, refused_for_good, refused_for_now

__all__ = ["retry_while_role_is_new"]

logger = logging.getLogger(__name__)


async def retry_while_role_is_new(attempt: Callable[[], Awaitable[None]], seconds: float) -> None:
    """Call `attempt` until the relay accepts the identity, and log the first refusal.

    Args:
        attempt: Connects to the relay.
        seconds: How long to retry after the first refusal; see `relay_core.hyco.sas.Credential.role_grace`.

    Raises:
        RelayDebugError: an error from `attempt` that a new role cannot explain, or Unauthorized if the time has run
            out.
    """
    grace, backoff = NewRoleGrace(seconds), Backoff(random.random)
    while True:
        is_first = grace.until is None
        try:
            return await attempt()
        except RelayDebugError as error:
            if not grace.concerns(error):
                raise
            if not grace.allows_retry(now=time.monotonic()):
                raise refused_for_good(error) from None
            if is_first:
                until = time.strftime("%H:%M", time.localtime(time.time() + seconds))
                logger.warning("%s", refused_for_now(error, until))
        left = (grace.until or 0.0) - time.monotonic()
        await asyncio.sleep(max(0.0, min(backoff.next_delay(), left)))
