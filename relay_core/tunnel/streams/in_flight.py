"""Limit on unacknowledged data while several streams are open, so that bulk data does not delay the other streams.

Data that has been sent and not acknowledged is either on its way or in a queue of the path. Only queues delay other
streams. So the time from a frame to its acknowledgement is measured about once per round trip. The shortest time is the
path's own delay, and the excess is the time in queues. The amount that was in flight, divided by the time that its
acknowledgement took, is the rate of the path. The limit is that rate, multiplied by the sum of the path's delay and the
time that a queue may take. If queues are nearly empty, the path may be faster than this data shows, so the limit is
doubled. A path without a delay has no bandwidth-delay product; its limit is the data that the programs need to work
concurrently.
"""

from __future__ import annotations

from collections import deque

from relay_core.tunnel.limits import KIB

__all__ = ["QUEUE_TIME", "SHORT_LIMIT", "SHORT_TIME", "InFlight"]

QUEUE_TIME = 0.002
QUEUE_SHARE = 1 / 16
"""Time for which data may wait in queues: this many seconds, plus this share of the path's delay (7.5 ms at 120 ms)."""
NEAR = 0.005
"""Delay in seconds below which a path counts as short; on a short path, the processors are the limit."""
SHORT_TIME = 0.020
SHORT_LIMIT = 1024 * KIB
"""On a short path, the limit is what the path carries in this many seconds, but at most this many bytes. With less
data, each program would often have to wait for the others."""
RATES = 8
"""Number of latest measurements that are kept, which cover about one second. While no stream is interactive, the
highest of them counts, because a program that waits for a processor lowers individual measurements.
"""
MIN_SAMPLE = 128 * KIB
"""Bytes in flight that a measurement requires. The acknowledgement of less data may be delayed until more arrives."""


class InFlight:
    """Measurements of one transport; create a new object for the next transport."""

    def __init__(self) -> None:
        self.limit = 0
        """Bytes that may be in flight while no stream is interactive; 0 before the first measurement."""
        self.interactive_limit = 0
        """Bytes that may be in flight while a stream is interactive; 0 before the first measurement, and on a short
        path."""
        self._delay = 0.0
        """Shortest time to an acknowledgement."""
        self._rates: deque[float] = deque(maxlen=RATES)
        """The last measurements of the rate, in bytes per second."""
        self._sample: tuple[int, float, int] | None = None
        """Sequence number of the frame that is being measured, time at which it was sent, and bytes in flight at that
        time."""

    def __repr__(self) -> str:
        return f"<InFlight {self.limit} bytes, {1000 * self._delay:.1f} ms>"

    @property
    def is_short(self) -> bool:
        """True if the path has almost no delay, as far as it has been measured."""
        return self._delay < NEAR

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
        if self.is_short:
            self.limit, self.interactive_limit = min(int(size / delay * SHORT_TIME), SHORT_LIMIT), 0
            return
        queue_time = QUEUE_TIME + self._delay * QUEUE_SHARE
        self._rates.append(size / delay)
        if delay - self._delay < queue_time / 2:
            self.limit = max(self.limit, 2 * size)
            self.interactive_limit = max(self.interactive_limit, 2 * size)
        else:
            self.limit = int(max(self._rates) * (self._delay + queue_time))
            # A lower rate may be that of a program that is waiting for a processor. That program's queue delays data
            # too.
            self.interactive_limit = int(self._rates[-1] * (self._delay + queue_time))
