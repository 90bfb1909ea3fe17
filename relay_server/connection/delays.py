"""Simulated latency for measurements: a connection that delays bytes in both directions.

Order and throughput do not change. Only relays with a DelayProfile use this class, so it does not slow down other
relays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from relay_server.connection.tcp import Connection

__all__ = ["DelayedConnection"]


class DelayedConnection(Connection):
    """A connection with a one-way latency of `lane` seconds in each direction; `abort` is not delayed."""

    def __init__(
        self, buffer: memoryview, made: Callable[[Connection], None], gone: Callable[[Connection], None], *, lane: float
    ) -> None:
        super().__init__(buffer, made, gone)
        self._lane = lane
        self._outgoing: deque[Callable[[], None]] = deque()
        self._incoming: deque[Callable[[], None]] = deque()

    def write(self, data: bytes) -> None:
        """Send bytes after the delay."""
        write = super().write
        self._later(self._outgoing, lambda: write(data))

    def _shut(self) -> None:
        shut = super()._shut
        self._later(self._outgoing, shut)

    def _deliver(self, data: memoryview) -> None:
        deliver, kept = super()._deliver, bytes(data)
        self._later(self._incoming, lambda: deliver(memoryview(kept)))

    def _lose(self) -> None:
        self._later(self._incoming, super()._lose)

    def _later(self, lane: deque[Callable[[], None]], action: Callable[[], None]) -> None:
        # Timers that are due at the same moment run in any order, so a timer runs the oldest action, not its own.
        lane.append(action)
        self._loop.call_later(self._lane, self._next, lane)

    @staticmethod
    def _next(lane: deque[Callable[[], None]]) -> None:
        lane.popleft()()
