import pytest

from relay_core.tunnel.limits import PROBE_TIMEOUT, STALL, Settings
from relay_core.tunnel.liveness import Liveness


@pytest.fixture
def liveness() -> Liveness:
    """A transport that was attached, pinged, and received data, all at 0."""
    liveness = Liveness(Settings(ping_after=10, dead_after=25), 0.0)
    assert liveness.take_ping(0.0) == 1
    liveness.data_received(0.0)
    return liveness


def test_a_fresh_transport_is_measured_and_dies_without_an_answer():
    """The first PING leaves at once, and the verdict counts from the beginning."""
    liveness = Liveness(Settings(), 100.0)
    assert liveness.ping_due
    assert liveness.deadline == 125.0
    assert not liveness.check(125.0)


def test_silence_is_asked_about_once(liveness):
    """A PING after 10 s of silence, and no second one before the verdict."""
    assert liveness.deadline == 10.0
    assert liveness.check(9.9)
    assert not liveness.ping_due
    assert liveness.check(10.0)
    assert liveness.ping_due
    liveness.take_ping(10.0)
    assert liveness.deadline == 25.0
    assert liveness.check(24.9)
    assert not liveness.ping_due
    assert not liveness.check(25.0)


def test_whatever_is_received_counts(liveness):
    """Any byte starts the silence anew."""
    liveness.check(10.0)
    liveness.data_received(24.0)
    assert liveness.deadline == 34.0
    assert liveness.check(30.0)


def test_a_probe_shortens_the_verdict(liveness):
    """A probe asks at once and waits only for its own time; an answer ends it."""
    liveness.probe(2.0, 3.0)
    assert liveness.ping_due
    assert liveness.deadline == 5.0
    assert not liveness.check(5.0)
    liveness.data_received(4.0)
    assert liveness.check(5.0)
    assert liveness.deadline == 14.0


def test_a_stalled_loop_does_not_condemn_its_peer(liveness):
    """A verdict found late becomes a probe; a second silence is the peer's."""
    late = 25.0 + STALL
    assert liveness.check(late)
    assert liveness.ping_due
    assert liveness.deadline == late + PROBE_TIMEOUT
    assert not liveness.check(late + PROBE_TIMEOUT)


def test_a_round_trip_is_measured_with_the_newest_ping(liveness):
    """Only the PONG for the last PING shows how long it takes."""
    assert liveness.take_ping(5.0) == 2
    assert liveness.pong(1, 5.5) is None
    assert liveness.pong(2, 5.5) == 0.5
