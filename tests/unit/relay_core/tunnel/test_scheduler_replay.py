import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.tunnel import frames
from relay_core.tunnel.limits import Settings
from relay_core.tunnel.outcomes import Breach, ProtocolBreach
from relay_core.tunnel.scheduler import Receipts, ReplayBuffer

SETTINGS = Settings(ack_bytes=1000, ack_frames=4, ack_delay=0.1)


def filled(count: int) -> ReplayBuffer:
    replay = ReplayBuffer()
    for number in range(1, count + 1):
        replay.add(frames.DATA, 1, bytes(number))
    return replay


@given(count=st.integers(0, 20), acks=st.lists(st.integers(0, 20), max_size=6))
def test_a_buffer_holds_what_was_not_acknowledged(count, acks):
    """Acknowledgements are cumulative, old ones change nothing, and the size counts headers."""
    replay = filled(count)
    for ack in acks:
        replay.ack(min(ack, count))
    best = min(max(acks, default=0), count)
    assert replay.acked == best
    assert replay.size == sum(20 + number for number in range(best + 1, count + 1))


def test_an_acknowledgement_of_the_future_is_a_breach():
    """Nobody can have what was never sent."""
    with pytest.raises(ProtocolBreach) as caught:
        filled(3).ack(4)
    assert caught.value.breach is Breach.ACK


@given(acked=st.integers(0, 10), sent_again=st.integers(0, 10), late=st.integers(0, 10))
def test_after_a_rewind_the_rest_leaves_again_in_order(acked, sent_again, late):
    """Frames leave again once, byte for byte, except those acknowledged meanwhile."""
    replay = filled(10)
    replay.ack(acked)
    before = list(replay._kept)
    replay.rewind()
    again = [replay.next_resend() for _ in range(min(sent_again, 10 - acked))]
    replay.ack(late)
    while (frame := replay.next_resend()) is not None:
        again.append(frame)
    assert again == [f for f in before if f.seq <= acked + sent_again or f.seq > late]
    assert (0, 2, 43) == ((two := filled(2)).acked, two.last_sent, two.size)


def test_receipts_accept_only_the_next_frame():
    """Lower numbers are duplicates, higher ones a breach."""
    receipts = Receipts(SETTINGS)
    assert receipts.is_next(1)
    receipts.accept(20, 0.0)
    assert not receipts.is_next(1)
    assert receipts.is_next(2)
    with pytest.raises(ProtocolBreach) as caught:
        receipts.is_next(3)
    assert caught.value.breach is Breach.SEQUENCE


@pytest.mark.parametrize(("size", "count"), [(250, 4), (1000, 1), (20, 4)])
def test_an_ack_is_due_after_enough_bytes_or_frames(size, count):
    """Whichever comes first, and not before."""
    receipts = Receipts(SETTINGS)
    for number in range(1, count + 1):
        assert not receipts.due
        receipts.accept(size, 0.0)
        assert receipts.pending
        assert receipts.due == (number == count)
    assert receipts.take() == count
    assert not receipts.pending
    assert receipts.deadline is None
    receipts.accept(999, 0.0)
    assert not receipts.due


def test_an_ack_to_several_streams_is_due_after_half_of_what_earlier_versions_may_send():
    """An earlier version stops at 128 KiB, however much this side may have in flight itself."""
    settings = Settings()
    receipts = Receipts(settings)
    receipts.accept(64 * 1024 - 1, 0.0, shared=True)
    assert not receipts.due
    receipts.accept(1, 0.0, shared=True)
    assert receipts.due
    assert settings.shared_in_flight > 128 * 1024


def test_an_ack_is_due_some_time_after_the_oldest_frame():
    """Later frames do not put it off."""
    receipts = Receipts(SETTINGS)
    receipts.accept(20, 1.0)
    receipts.accept(20, 1.05)
    assert receipts.deadline == pytest.approx(1.1)
    receipts.tick(1.09)
    assert not receipts.due
    receipts.tick(1.1)
    assert receipts.due
    assert receipts.deadline is None
    assert (2, True) == (receipts.received, receipts.pending)
