"""How many senders an agent serves at a time before they have shown that they may use the tunnel.

Every sender costs the agent a connection to the relay and TLS buffers, and anybody with a Send key can be a sender. So
an offer needs a place before it is accepted, and gives it back when its handshake is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator

from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConnectionLost
from relay_core.tunnel.limits import HANDSHAKE_TIMEOUT

__all__ = ["Admission"]

MAX_HANDSHAKES = 32
"""Handshakes in progress; each holds a descriptor and about 400 KiB. A client has at most a few at a time."""
MAX_WAITING = 256
"""Offers that wait for a place, of up to 64 KiB each; beyond that the oldest is dropped."""
MAX_WAIT = 25.0
"""Seconds that an offer waits; the relay refuses a sender that is not accepted within 30 s."""
BUSY_TIMEOUT = 3.0
"""Seconds for a handshake while other offers wait; enough for a client on a slow network."""

logger = logging.getLogger(__name__)


class Admission:
    """Places for handshakes.

    While all places are taken, the newest offer is next: somebody who floods an agent makes every offer wait, and the
    clients of old offers have given up.
    """

    def __init__(self) -> None:
        self._free = MAX_HANDSHAKES
        self._waiting: deque[asyncio.Future[bool]] = deque()
        self._logged = False

    def __repr__(self) -> str:
        return f"<Admission free={self._free} waiting={len(self._waiting)}>"

    @property
    def time_limit(self) -> float:
        """Seconds for a handshake that begins now."""
        return BUSY_TIMEOUT if self._waiting else HANDSHAKE_TIMEOUT

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a place, after waiting for one.

        Raises:
            ConnectionLost: There was none in time.
        """
        if self._free:
            self._free -= 1
        elif not await self._wait():
            raise ConnectionLost("too many clients were connecting")
        try:
            yield
        finally:
            self._release()

    async def _wait(self) -> bool:
        """Return True with a place, or False without one."""
        if not self._logged:
            self._logged = True
            logger.warning("%d clients are connecting at the same time; further ones wait", MAX_HANDSHAKES)
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft().set_result(False)
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            async with timeout(MAX_WAIT):
                return await waiter
        except BaseException as error:
            self._abandon(waiter)
            if isinstance(error, TIMEOUT_ERRORS):
                return False
            raise

    def _abandon(self, waiter: asyncio.Future[bool]) -> None:
        """Remove a waiter, or pass on the place that it was given while its task was cancelled."""
        if waiter in self._waiting:
            self._waiting.remove(waiter)
        elif waiter.done() and not waiter.cancelled() and waiter.result():
            self._release()

    def _release(self) -> None:
        while self._waiting:
            waiter = self._waiting.pop()
            if not waiter.done():
                waiter.set_result(True)
                return
        self._free += 1
        self._logged = self._logged and self._free < MAX_HANDSHAKES
