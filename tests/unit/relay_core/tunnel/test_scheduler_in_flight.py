"""Facts about the limit of data in flight, on a path with a queue in front of its slowest part."""

import pytest

from relay_core.tunnel.limits import MIB
from relay_core.tunnel.scheduler import (
    MIN_SAMPLE,
    NEAR,
    QUEUE_SHARE,
    QUEUE_TIME,
    SHORT_LIMIT,
    SHORT_TIME,
    InFlight,
)

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


def test_one_late_acknowledgement_lowers_the_limit_of_interactive_streams_only():
    """A program that waits for a processor is not the path, but its queue delays data too."""
    in_flight = InFlight()
    transfer(in_flight, 12)
    before = in_flight.limit
    in_flight.sent(13, before, 100.0)
    in_flight.acknowledged(13, 100.0 + 2 * DELAY)
    assert before <= in_flight.limit
    assert in_flight.interactive_limit == pytest.approx(before / 2, rel=0.1)


@pytest.mark.parametrize(("rate", "expected"), [(2 * SHORT_LIMIT / SHORT_TIME, SHORT_LIMIT), (RATE, RATE * SHORT_TIME)])
def test_on_a_short_path_the_limit_is_what_it_carries_in_some_milliseconds(rate, expected):
    """Its delay is next to nothing, so the data that programs need to work at the same time is what counts."""
    in_flight = InFlight()
    assert in_flight.is_short
    now = 0.0
    for seq in range(1, 13):
        in_flight.sent(seq, MIN_SAMPLE, now)
        now += NEAR / 2 if seq == 1 else MIN_SAMPLE / rate
        in_flight.acknowledged(seq, now)
    assert in_flight.is_short
    assert expected == pytest.approx(in_flight.limit, abs=1)
    assert 0 == in_flight.interactive_limit


def test_a_long_path_is_not_short():
    """One measurement is enough to know."""
    in_flight = InFlight()
    transfer(in_flight, 1)
    assert not in_flight.is_short


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


def test_the_first_measurement_doubles_what_was_in_flight():
    """The queue of the path was empty until then."""
    in_flight = InFlight()
    in_flight.sent(1, MIB, 1.0)
    in_flight.acknowledged(1, 1.25)
    assert in_flight.limit == 2 * MIB
