"""Limit on the number of unauthenticated senders that an agent serves concurrently, and log of those not served."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator

from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConnectionLost
from relay_core.tunnel.limits import HANDSHAKE_TIMEOUT

logger = logging.getLogger(__name__)


# Limit on the number of unauthenticated senders that an agent serves concurrently.
#
# Each sender uses a connection to the relay and TLS buffers, and anybody with a Send key can be a sender. An offer
# therefore needs a slot before it is accepted, and releases the slot when its handshake is complete.

MAX_HANDSHAKES = 32
"""Maximum number of concurrent handshakes; each uses a descriptor and about 400 KiB. A client performs only a few at a
time."""
MAX_WAITING = 256
"""Maximum number of waiting offers, each of which uses up to 64 KiB; if there are more, the oldest is dropped."""
MAX_WAIT = 25.0
"""Maximum time in seconds that an offer waits; the relay refuses a sender that is not accepted within 30 s."""
BUSY_TIMEOUT = 3.0
"""Timeout in seconds for a handshake while other offers are waiting; long enough for a client on a slow network."""


class Admission:
    """Slots for handshakes.

    While all slots are taken, the newest offer is served next: during a flood, every offer has to wait, and the clients
    that sent old offers have given up.
    """

    def __init__(self) -> None:
        self._free = MAX_HANDSHAKES
        self._waiting: deque[asyncio.Future[bool]] = deque()
        self._logged = False

    @property
    def time_limit(self) -> float:
        """Timeout in seconds for a handshake that begins now."""
        return BUSY_TIMEOUT if self._waiting else HANDSHAKE_TIMEOUT

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a slot for the duration of a block, after waiting for one if necessary.

        Raises:
            ConnectionLost: no slot became free in time.
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
        """Take a slot and return True, or return False if none became free in time."""
        if not self._logged:
            self._logged = True
            logger.warning("%d clients are connecting at the same time; additional clients must wait", MAX_HANDSHAKES)
        if len(self._waiting) >= MAX_WAITING:
            oldest = self._waiting.popleft()
            if not oldest.done():  # it is done if its task has just been cancelled and has not run since
                oldest.set_result(False)
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
        """Remove a waiter, or pass on a slot that it received while its task was being cancelled."""
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


# Log of the senders that an agent could not serve.
#
# During a flood of such senders, only their number is logged, once per minute.

PERIOD = 60.0
"""Seconds during which each reason is logged only once, because clients retry often."""
MAX_REASONS = 4
"""Maximum number of different reasons logged per period, because a reason may contain text from the sender."""


class RefusalLog:
    """Logs why senders could not be served."""

    def __init__(self) -> None:
        self._logged: set[str] = set()
        """The reasons logged in this period."""
        self._further = 0
        """Number of senders that were not logged in this period."""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, level: int, reason: str) -> None:
        """Log a reason, or count it if it was already logged in this period."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PERIOD, self._end_period)
        if reason in self._logged or len(self._logged) >= MAX_REASONS:
            self._further += 1
            logger.debug("cannot serve a client: %s", reason)
        else:
            self._logged.add(reason)
            logger.log(level, "cannot serve a client: %s", reason)

    def close(self) -> None:
        """Log the number of senders that were not logged."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._log_number()

    def _end_period(self) -> None:
        """Log how many senders were not logged, and start another period.

        After a period in which every sender was logged, reasons that were logged before are logged again.
        """
        if not self._further:
            self._logged.clear()
            self._timer = None
            return
        self._log_number()
        self._timer = asyncio.get_running_loop().call_later(PERIOD, self._end_period)

    def _log_number(self) -> None:
        if self._further:
            attempts = "attempt" if self._further == 1 else "attempts"
            logger.warning("%d further connection %s failed", self._further, attempts)
        self._further = 0
