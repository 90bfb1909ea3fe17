"""Log of the senders that an agent could not serve: a flood of them becomes one line a minute, with their number."""

from __future__ import annotations

import asyncio
import logging

__all__ = ["RefusalLog"]

PERIOD = 60.0
"""Seconds in which each reason is logged once; clients retry often."""
MAX_REASONS = 4
"""Different reasons that are logged in a period: a reason may contain text of the sender."""

logger = logging.getLogger(__name__)


class RefusalLog:
    """Logs why senders could not be served.

    Args:
        period: Seconds after which the number of further senders is logged.
    """

    def __init__(self, period: float = PERIOD) -> None:
        self._period = period
        self._logged: set[str] = set()
        """The reasons of this period."""
        self._further = 0
        """Senders in this period for which nothing was logged."""
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<RefusalLog logged={len(self._logged)} further={self._further}>"

    def add(self, level: int, reason: str) -> None:
        """Log a reason, or count it if there is a line about it already."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._period, self._end_period)
        if reason in self._logged or len(self._logged) >= MAX_REASONS:
            self._further += 1
            logger.debug("cannot serve a client: %s", reason)
        else:
            self._logged.add(reason)
            logger.log(level, "cannot serve a client: %s", reason)

    def close(self) -> None:
        """Log the number of senders that was not logged yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._log_number()

    def _end_period(self) -> None:
        """Log the number, and begin another period; a reason is logged again after a period without any sender."""
        if not self._further:
            self._logged.clear()
            self._timer = None
            return
        self._log_number()
        self._timer = asyncio.get_running_loop().call_later(self._period, self._end_period)

    def _log_number(self) -> None:
        if self._further:
            logger.warning("%d further attempts to connect could not be served", self._further)
        self._further = 0
