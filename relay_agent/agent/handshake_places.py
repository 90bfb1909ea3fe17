"""Limits the number of senders that an agent serves concurrently before they are authenticated.

Each sender uses a connection to the relay and TLS buffers, and anybody with a Send key can be a sender. An offer
therefore needs a place before it is accepted, and releases it when its handshake is complete.
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
"""Maximum number of concurrent handshakes; each uses a descriptor and about 400 KiB. A client has only a few at a
time."""
MAX_WAITING = 256
"""Maximum number of waiting offers, of up to 64 KiB each; beyond that, the oldest is dropped."""
MAX_WAIT = 25.0
"""Maximum time in seconds that an offer waits; the relay refuses a sender that is not accepted within 30 s."""
BUSY_TIMEOUT = 3.0
"""Timeout in seconds of a handshake while other offers wait; enough for a client on a slow network."""

logger = logging.getLogger(__name__)


class Admission:
    """Places for handshakes.

    While all places are taken, the newest offer is served next: under a flood every offer has to wait, and the clients
    of old offers have given up.
    """

    def __init__(self) -> None:
        self._free = MAX_HANDSHAKES
        self._waiting: deque[asyncio.Future[bool]] = deque()
        self._logged = False

    def __repr__(self) -> str:
        return f"<Admission free={self._free} waiting={len(self._waiting)}>"

    @property
    def time_limit(self) -> float:
        """Timeout in seconds of a handshake that begins now."""
        return BUSY_TIMEOUT if self._waiting else HANDSHAKE_TIMEOUT

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a place, after waiting for one.

        Raises:
            ConnectionLost: No place became free in time.
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
        """Take a place and return True, or return False if none is free."""
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
        """Remove a waiter, or pass on a place that it received while its task was being cancelled."""
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
