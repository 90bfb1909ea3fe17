"""Limit of unacknowledged data while several streams are open, so that bulk data does not delay the other streams.

Data that has been sent and not acknowledged is either on its way or in a queue of the path. Only queues delay other
streams. So the time from a frame to its acknowledgement is measured about once per round trip. The shortest one is the
path's own delay, and the excess is the time in queues. The amount that was in flight, divided by the time that its
acknowledgement took, is the rate of the path. The limit is that rate, multiplied by the path's delay and the time that
a queue may take. If queues are nearly empty, the path may be faster than this data shows, so the limit is doubled.
"""

from __future__ import annotations

from relay_core.tunnel.limits import KIB

__all__ = ["QUEUE_TIME", "InFlight"]

QUEUE_TIME = 0.002
QUEUE_SHARE = 1 / 16
"""Time that data may wait in queues: these seconds and this share of the path's delay (7.5 ms more at 120 ms)."""
NEAR = 0.005
"""Delay in seconds below which a path is too short to be measured: there, the processors are the limit."""
MIN_SAMPLE = 128 * KIB
"""Bytes in flight that a measurement requires. The acknowledgement of less data may be delayed until more arrives."""


class InFlight:
    """Measurements of one transport; create a new one for the next."""

    def __init__(self) -> None:
        self.limit = 0
        """Bytes that may be in flight; 0 before the first measurement, and on a short path."""
        self._delay = 0.0
        """Shortest time to an acknowledgement."""
        self._sample: tuple[int, float, int] | None = None
        """Sequence number of the frame that is being measured, time at which it was sent, and bytes in flight then."""

    def __repr__(self) -> str:
        return f"<InFlight {self.limit} bytes, {1000 * self._delay:.1f} ms>"

    def sent(self, seq: int, size: int, now: float) -> None:
        """Record that frames were sent, unless a measurement is in progress.

        Args:
            seq: Sequence number of the last frame.
            size: Bytes in flight.
            now: Monotonic seconds.
        """
        if self._sample is None and size >= MIN_SAMPLE:
            self._sample = (seq, now, size)

    def acknowledged(self, seq: int, now: float) -> None:
        """Record an acknowledgement of the frames up to `seq`."""
        if self._sample is None or seq < self._sample[0]:
            return
        (_, sent_at, size), self._sample = self._sample, None
        delay = max(now - sent_at, 1e-6)
        self._delay = min(self._delay or delay, delay)
        if self._delay < NEAR:
            self.limit = 0
            return
        queue_time = QUEUE_TIME + self._delay * QUEUE_SHARE
        if delay - self._delay < queue_time / 2:
            self.limit = max(self.limit, 2 * size)
        else:
            self.limit = int(size / delay * (self._delay + queue_time))
