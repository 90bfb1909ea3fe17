"""Facts about the limit of data in flight, on a path with a queue in front of its slowest part."""

import pytest

from relay_core.tunnel.limits import MIB
from relay_core.tunnel.streams.in_flight import MIN_SAMPLE, NEAR, QUEUE_SHARE, QUEUE_TIME, InFlight

DELAY = 0.12
RATE = 50 * MIB


def transfer(in_flight: InFlight, turns: int, *, delay: float = DELAY, rate: float = RATE) -> float:
    """Keep as much in flight as is allowed; return how long the last acknowledgement took."""
    now = took = 0.0
    for seq in range(1, turns + 1):
        size = max(in_flight.limit, MIN_SAMPLE)
        took = max(delay, size / rate)  # what exceeds rate times delay waits in the queue
        in_flight.sent(seq, size, now)
        now += took
        in_flight.acknowledged(seq, now)
    return took


def test_the_limit_fills_a_long_path_and_hardly_its_queue():
    """After a second, the path is full, and data waits no longer in queues than it may."""
    in_flight = InFlight()
    took = transfer(in_flight, 12)
    assert in_flight.limit >= RATE * DELAY
    assert took - DELAY <= QUEUE_TIME + DELAY * QUEUE_SHARE


def test_the_limit_follows_a_path_that_becomes_slower():
    """A tenth of the rate needs a tenth of the limit."""
    in_flight = InFlight()
    transfer(in_flight, 12)
    transfer(in_flight, 12, rate=RATE / 10)
    assert in_flight.limit == pytest.approx(RATE / 10 * (DELAY + QUEUE_TIME + DELAY * QUEUE_SHARE), rel=0.01)


def test_a_short_path_is_not_measured():
    """Where acknowledgements return at once, the scheduler's own limit applies."""
    in_flight = InFlight()
    transfer(in_flight, 12, delay=NEAR / 2)
    assert 0 == in_flight.limit


def test_one_frame_at_a_time_is_measured():
    """Frames sent during a measurement do not change it, and neither do acknowledgements of earlier ones."""
    in_flight = InFlight()
    in_flight.sent(5, MIB, 1.0)
    in_flight.sent(6, 2 * MIB, 1.1)
    in_flight.acknowledged(4, 1.1)
    assert 0 == in_flight.limit
    in_flight.acknowledged(6, 1.2)
    assert 2 * MIB == in_flight.limit


def test_little_data_is_not_measured():
    """Its acknowledgement may be delayed until more arrives."""
    in_flight = InFlight()
    in_flight.sent(1, MIN_SAMPLE - 1, 1.0)
    in_flight.acknowledged(1, 1.2)
    assert 0 == in_flight.limit


def test_repr():
    """Limit and delay are shown."""
    in_flight = InFlight()
    in_flight.sent(1, MIB, 1.0)
    in_flight.acknowledged(1, 1.25)
    assert repr(in_flight) == "<InFlight 2097152 bytes, 250.0 ms>"
