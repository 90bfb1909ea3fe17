"""Log of the senders that an agent could not serve.

During a flood of such senders, only their number is logged, once per minute.
"""

from __future__ import annotations

import asyncio
import logging

__all__ = ["RefusalLog"]

PERIOD = 60.0
"""Seconds during which each reason is logged only once, because clients retry often."""
MAX_REASONS = 4
"""Maximum number of different reasons logged per period, because a reason may contain text from the sender."""

logger = logging.getLogger(__name__)


class RefusalLog:
    """Logs why senders could not be served.

    Args:
        period: Seconds after which the number of further senders is logged.
    """

    def __init__(self, period: float = PERIOD) -> None:
        self._period = period
        self._logged: set[str] = set()
        """The reasons logged in this period."""
        self._further = 0
        """Number of senders that were not logged in this period."""
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<RefusalLog logged={len(self._logged)} further={self._further}>"

    def add(self, level: int, reason: str) -> None:
        """Log a reason, or count it if it was already logged in this period."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._period, self._end_period)
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
        self._timer = asyncio.get_running_loop().call_later(self._period, self._end_period)

    def _log_number(self) -> None:
        if self._further:
            attempts = "attempt" if self._further == 1 else "attempts"
            logger.warning("%d further connection %s failed", self._further, attempts)
        self._further = 0
