"""Facts about windows that grow: only where a consumer is so fast, or its path so long, that it waits for its peer."""

import pytest

from relay_core.tunnel.limits import MAX_WINDOW_GROWTH, MIB, Settings
from relay_core.tunnel.stream import GROWTH_LEAST
from tests.support.sessions.tunnel_link import Link, connected

WINDOW = Settings().limits.window
MAX_WINDOW = Settings().max_window
ROUND_TRIP = 1.0
QUICK_ACKS = Settings(ack_delay=0.001)
"""`settle` lets delayed acknowledgements become due, which should take next to no time here."""


def far_apart(agent: Settings = QUICK_ACKS) -> Link:
    """A link whose agent has measured its round trip."""
    link = connected(QUICK_ACKS, agent)
    link.agent.session.probe(link.now, 5.0)
    link.wire.push_down()
    link.now += ROUND_TRIP
    link.settle()
    assert [0.0, pytest.approx(ROUND_TRIP)] == link.agent.round_trips[-2:]
    return link


def move(link: Link, stream: int, size: int, *, pause: float) -> None:
    """The client sends so many bytes, as many after each pause as its queue takes; the agent consumes them."""
    left = size
    while left:
        left -= link.client.session.streams.send(stream, bytes(min(left, MIB)))
        link.settle()
        link.now += pause


def window(link: Link, stream: int) -> int:
    """Return how much the client may send ahead once everything is consumed and settled."""
    link.agent.consume = False
    sent = 0
    while size := link.client.session.streams.send(stream, bytes(64 * 1024)):
        sent += size
        link.settle()
    return sent


def test_a_window_grows_on_a_long_path():
    """A consumer that is done with half a window within a round trip gets more and more sent ahead, up to a limit."""
    link = far_apart()
    stream = link.client.session.streams.open(1)
    move(link, stream, 4 * MAX_WINDOW, pause=ROUND_TRIP / 128)
    assert MAX_WINDOW * 3 // 4 < window(link, stream) <= MAX_WINDOW


def test_a_window_is_full_grown_after_three_round_trips():
    """Two bursts of what the windows allow are enough, because each of them is consumed within a round trip."""
    link = far_apart()
    stream = link.client.session.streams.open(1)
    for _ in range(3):
        while link.client.session.streams.send(stream, bytes(MIB)):
            link.wire.push_up()
            link.wire.deliver_up()
        link.now += ROUND_TRIP
        link.settle()
    assert MAX_WINDOW * 3 // 4 < window(link, stream) <= MAX_WINDOW


def test_a_window_stays_where_the_consumer_is_slow():
    """More would only fill memory."""
    link = far_apart()
    stream = link.client.session.streams.open(1)
    move(link, stream, 16 * MIB, pause=ROUND_TRIP * 2)
    assert window(link, stream) <= WINDOW


def test_a_window_stays_where_the_round_trip_is_not_known():
    """The first measurement comes with the answer to the first PING."""
    link = connected(QUICK_ACKS, QUICK_ACKS)
    stream = link.client.session.streams.open(1)
    move(link, stream, 16 * MIB, pause=2 * GROWTH_LEAST)
    assert window(link, stream) <= WINDOW


def test_a_window_grows_for_a_fast_consumer():
    """Without latency, a window lasts until the programs of the path have taken turns on a processor."""
    link = connected(QUICK_ACKS, QUICK_ACKS)
    stream = link.client.session.streams.open(1)
    move(link, stream, 16 * MIB, pause=GROWTH_LEAST / 4)
    assert window(link, stream) > WINDOW


def test_all_streams_share_what_windows_may_grow_by():
    """Memory is bounded however many streams are fast; who ends leaves its share to the others."""
    link = far_apart()
    streams = [link.client.session.streams.open(1) for _ in range(8)]
    for stream in streams:
        move(link, stream, 4 * MAX_WINDOW, pause=ROUND_TRIP / 128)
    table = link.agent.session.streams
    assert table._window_growth == MAX_WINDOW_GROWTH
    link.client.session.streams.reset(streams[0], 0)
    link.settle()
    assert table._window_growth == MAX_WINDOW_GROWTH - (MAX_WINDOW - WINDOW)
    move(link, streams[-1], 4 * MAX_WINDOW, pause=ROUND_TRIP / 128)
    assert table._window_growth == MAX_WINDOW_GROWTH


def test_a_small_window_can_be_fixed():
    """A limit below the first window means that it never grows."""
    link = far_apart(Settings(ack_delay=0.001, max_window=1))
    stream = link.client.session.streams.open(1)
    move(link, stream, 4 * MAX_WINDOW, pause=ROUND_TRIP / 128)
    assert window(link, stream) <= WINDOW
