import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.tunnel.stream import GROWTH_LEAST, GROWTH_TIME, PIECE, SendQueue, Stream


def a_stream(*, window: int = 100, credit: int = 100, queue_limit: int = 100) -> Stream:
    return Stream(1, incoming=False, window=window, credit=credit, queue_limit=queue_limit)


@given(pieces=st.lists(st.binary(min_size=1, max_size=3000), max_size=12), limits=st.lists(st.integers(1, 5000)))
def test_a_queue_gives_back_what_it_was_given(pieces, limits):
    """Any appends and takes give the same bytes, never more than asked for, never nothing."""
    queue, taken = SendQueue(), b""
    for piece in pieces:
        queue.append(piece)
    for limit in [*limits, *[100] * 400]:
        if queue.size:
            part = queue.take(limit)
            assert 1 <= len(part) <= limit
            taken += part
    assert taken == b"".join(pieces)
    assert queue.size == 0


def test_large_pieces_are_not_copied():
    """What is taken in one piece is the object that was given, and a part is a view of it."""
    data = bytes(100_000)
    queue = SendQueue()
    queue.append(data)
    assert queue.take(100_000) is data
    queue.append(data)
    assert queue.take(1000).obj is data


def test_small_pieces_are_gathered():
    """A thousand tiny appends are held in few pieces and leave as one frame's worth."""
    queue = SendQueue()
    for _ in range(1000):
        queue.append(b"0123456789")
    assert len(queue._pieces) == 1
    assert len(queue.take(64 * 1024)) == 10_000
    for _ in range(3 * PIECE):
        queue.append(b"x")
    assert len(queue._pieces) == 3


def test_writing_stops_at_the_peers_credit():
    """A writer learns how much was taken, and may continue once it has credit."""
    stream = a_stream(credit=60)
    assert stream.write(b"x" * 50) == 50
    assert stream.write(b"x" * 50) == 10
    assert stream.write(b"x") == 0
    stream.queue.clear()
    assert not stream.unblock()
    stream.credit += 1
    assert stream.unblock()
    assert not stream.unblock()


def test_writing_stops_at_the_queues_limit():
    """A full queue blocks too, until half of it has left."""
    stream = a_stream(credit=1000, queue_limit=100)
    assert stream.write(b"x" * 150) == 100
    stream.queue.take(49)
    assert not stream.unblock()
    stream.queue.take(1)
    assert stream.unblock()


def test_nobody_waits_to_write_after_the_end():
    """Ending a direction ends the wait for it."""
    stream = a_stream(credit=1)
    stream.write(b"xx")
    stream.end()
    stream.queue.take(1)
    stream.credit += 5
    assert not stream.unblock()


def test_received_bytes_use_up_the_allowance():
    """What exceeds the window is not accepted, and nothing is counted for it."""
    stream = a_stream(window=100)
    assert stream.receive(100)
    assert not stream.receive(1)
    assert stream.unread == 100


def test_credit_goes_back_at_half_a_window_consumed():
    """Not before, and then all of it; reading, not receiving, is what counts."""
    stream = a_stream(window=100)
    stream.receive(100)
    assert stream.consume(49) == 0
    assert stream.consume(1) == 50
    assert stream.allowance == 50
    assert stream.consume(50) == 50
    assert stream.allowance == 100


def test_an_ended_direction_needs_no_credit():
    """After the peer's end nothing is given back."""
    stream = a_stream(window=100)
    stream.receive(100)
    stream.eof_received = True
    assert stream.consume(100) == 0


def test_a_window_grows_fourfold_up_to_its_bounds():
    """The credit that it adds is allowed at once; neither the window's limit nor the session's is exceeded."""
    stream = a_stream(window=100)
    stream.receive(100)
    assert 300 == stream.grow_window(2000, 1000)
    assert (300, 300) == (stream.allowance, stream.window_growth)
    assert 600 == stream.grow_window(1000, 1000)
    assert 0 == stream.grow_window(1000, 1000)
    assert 30 == stream.grow_window(2000, 30)
    assert 930 == stream.window_growth


def test_credit_of_a_larger_window_goes_back_as_often_as_before():
    """The peer on a long path does not wait for half of the larger window."""
    stream = a_stream(window=100)
    assert 300 == stream.grow_window(1000, 1000)
    stream.receive(400)
    assert 0 == stream.consume(49)
    assert 50 == stream.consume(1)
    assert 350 == stream.consume(350)


def test_a_window_is_too_small_if_half_of_it_lasts_less_than_some_round_trips():
    """The first half counts from the first data, each other one from the previous decision."""
    stream = a_stream(window=100)
    assert not stream.window_too_small(50, 1.0, 0.0)
    assert stream.window_too_small(50, 1.0, 0.9 * GROWTH_TIME)
    assert not stream.window_too_small(49, 1.0, GROWTH_TIME)
    assert not stream.window_too_small(1, 1.0, 2 * GROWTH_TIME)
    stream.grow_window(200, 1000)
    assert not stream.window_too_small(50, 1.0, 2.1 * GROWTH_TIME)
    assert stream.window_too_small(50, 1.0, 2.2 * GROWTH_TIME)


def test_on_a_path_without_latency_a_window_must_last_for_some_milliseconds():
    """A round trip is shorter than a turn of another program on the same processor."""
    stream = a_stream(window=100)
    assert not stream.window_too_small(50, 0.0, 0.0)
    assert stream.window_too_small(50, 0.0, GROWTH_LEAST * 0.9)
    assert not stream.window_too_small(50, 0.0, GROWTH_LEAST * 2)


def test_more_than_was_received_cannot_be_consumed():
    """A driver that counts wrongly gets an error at once."""
    stream = a_stream()
    stream.receive(10)
    with pytest.raises(ValueError, match="11 bytes consumed, 10 unread"):
        stream.consume(11)


def test_the_end_of_a_stream_waits_behind_its_data():
    """Queued data uses up credit, and EOF is sent after it."""
    stream = a_stream()
    stream.write(b"abc")
    stream.end()
    assert (stream.eof_queued, stream.eof_sent, stream.eof_received) == (True, False, False)
    assert (stream.credit, stream.queue.size, stream.unread) == (97, 3, 0)
