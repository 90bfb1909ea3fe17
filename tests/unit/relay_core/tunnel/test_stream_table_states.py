import pytest

from relay_core.tunnel.limits import MAX_STREAM_ID, OPEN_RATE, Limits, Settings
from relay_core.tunnel.outcomes import Breach, ProtocolBreach, Role, StreamLimitReached
from relay_core.tunnel.stream_table import StreamTable


def table(role: Role = Role.CLIENT, *, local: int = 3, peer: int = 2) -> StreamTable:
    settings = Settings(limits=Limits(max_streams=local))
    return StreamTable(role, settings=settings, peer=Limits(max_streams=peer), now=0.0)


@pytest.mark.parametrize(("role", "ours", "theirs"), [(Role.CLIENT, [1, 3], [2, 4]), (Role.AGENT, [2, 4], [1, 3])])
def test_the_client_counts_odd_and_the_agent_even(role, ours, theirs):
    """The two sides never choose the same number."""
    streams = table(role)
    assert [streams.open().id for _ in ours] == ours
    assert [streams.admit(number, 0.0).id for number in theirs] == theirs


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("number", [0, 1, 2, 3, 4, 99])
def test_a_number_that_was_never_used_is_a_breach(role, number):
    """A frame for a stream that nobody opened cannot be late."""
    with pytest.raises(ProtocolBreach) as caught:
        table(role).get(number)
    assert caught.value.breach is Breach.UNKNOWN_STREAM


def test_a_number_that_was_used_is_late():
    """A frame for a stream that is gone finds nothing, and that is all."""
    streams = table()
    ours, theirs = streams.open(), streams.admit(2, 0.0)
    assert streams.get(1) is ours
    streams.remove(ours)
    streams.remove(theirs)
    assert streams.get(1) is None
    assert streams.get(2) is None


@pytest.mark.parametrize("number", [0, 1, 3, 4, 2])
def test_a_peer_uses_its_own_numbers_upwards(number):
    """The other side's numbers, old ones and zero are a breach."""
    streams = table()
    streams.admit(4, 0.0)
    with pytest.raises(ProtocolBreach) as caught:
        streams.admit(number, 0.0)
    assert caught.value.breach is Breach.STREAM_ID


def test_each_side_opens_as_many_as_the_other_takes():
    """Our limit is the peer's number, its limit is ours, and a place that gets free can be used."""
    streams = table(local=3, peer=2)
    first, _ = streams.open(), streams.open()
    with pytest.raises(StreamLimitReached, match="accepts at most 2 connections"):
        streams.open()
    streams.remove(first)
    assert streams.open().id == 5
    admitted = [streams.admit(number, 0.0) for number in (2, 4, 6, 8)]
    assert admitted[3] is None
    streams.remove(admitted[0])
    assert streams.admit(10, 1.0) is not None


def test_a_peer_that_opens_too_fast_is_slowed_down():
    """After a burst, streams are admitted at a fixed rate, however short they live."""
    streams = table(local=3)

    def admit(number: int, now: float) -> bool:
        stream = streams.admit(number, now)
        if stream is not None:
            streams.remove(stream)
        return stream is not None

    assert [admit(number, 0.0) for number in (2, 4, 6, 8)] == [True, True, True, False]
    assert not admit(10, 0.5 / OPEN_RATE)
    assert admit(12, 1.6 / OPEN_RATE)


def test_used_up_numbers_end_in_an_error():
    """No number is ever used twice."""
    streams = table()
    streams._next_id = MAX_STREAM_ID + 2
    with pytest.raises(StreamLimitReached):
        streams.open()


def test_a_table_forgets_everything_at_the_end():
    """clear() returns the live streams and leaves none."""
    streams = table()
    live = [streams.open(), streams.admit(2, 0.0)]
    assert len(streams) == 2
    assert streams.clear() == live
    assert len(streams) == 0
    assert streams.find(1) is None
