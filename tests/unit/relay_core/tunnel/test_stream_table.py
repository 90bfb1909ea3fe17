"""Facts about the streams of a session: what their owners do, and what the peer does to them."""

import pytest

from relay_core.errors import ConnectionLost
from relay_core.tunnel.limits import KIB, MIB
from relay_core.tunnel.outcomes import ResetCode
from tests.support.sessions.tunnel_link import pattern


def test_bytes_go_both_ways_before_and_after_the_answer(link):
    """Data may follow an OPEN at once, and either side may open."""
    for opener, other in ((link.client, link.agent), (link.agent, link.client)):
        stream = opener.session.streams.open("tensorboard", {"who": "ada@laptop"})
        assert opener.session.streams.send(stream, b"request") == 7
        link.settle()
        assert other.opened[stream] == ("tensorboard", {"who": "ada@laptop"})
        assert other.received[stream] == b"request"
        assert opener.is_accepted(stream)
        other.session.streams.send(stream, b"response")
        link.settle()
        assert opener.received[stream] == b"response"


@pytest.mark.parametrize("first", ["client", "agent"])
def test_half_close_works_in_both_directions(link, first):
    """Whoever ends first still receives from the other, and the stream is gone when both have ended."""
    stream = link.client.session.streams.open(5678)
    link.settle()
    one, other = (link.client, link.agent) if first == "client" else (link.agent, link.client)
    one.session.streams.send(stream, b"last words")
    one.session.streams.send_eof(stream)
    link.settle()
    assert other.received[stream] == b"last words"
    assert stream in other.ended
    with pytest.raises(ConnectionLost):
        one.session.streams.send(stream, b"more")
    other.session.streams.send(stream, b"answer")
    link.settle()
    assert one.received[stream] == b"answer"
    other.session.streams.send_eof(stream)
    link.settle()
    assert stream in one.ended
    assert len(one.session.streams) == len(other.session.streams) == 0


@pytest.mark.parametrize("size", [0, 10, 300_000])
def test_an_answer_and_its_end_may_leave_together(link, size):
    """After the peer's end, any answer may be written and ended at once; the stream is gone once, on both sides."""
    stream = link.client.session.streams.open(5678)
    link.client.session.streams.send_eof(stream)
    link.settle()
    taken = link.agent.session.streams.send(stream, pattern(1, 0, size))
    link.agent.session.streams.send_eof(stream)
    link.settle()
    assert link.client.received[stream] == pattern(1, 0, taken)
    assert stream in link.client.ended
    assert len(link.client.session.streams) == len(link.agent.session.streams) == 0


def test_a_reset_hurts_only_its_own_stream(link):
    """What the others carry arrives, what the reset stream had queued does not."""
    streams = [link.client.session.streams.open(port) for port in (5678, 5679, 5680)]
    link.settle()
    for stream in streams:
        link.client.session.streams.send(stream, pattern(stream, 0, 1000))
    link.client.session.streams.reset(streams[1], ResetCode.CANCELLED, "the editor has gone")
    link.settle()
    assert link.agent.resets == {streams[1]: ResetCode.CANCELLED}
    assert [len(link.agent.received[stream]) for stream in streams] == [1000, 0, 1000]
    assert len(link.client.session.streams) == 2


def test_a_refused_open_is_reported_with_its_code(link):
    """The opener sees a reset with the code, and its neighbours live."""
    link.agent.accept = False
    stream = link.client.session.streams.open(22)
    link.settle()
    link.agent.session.streams.reset(stream, ResetCode.NOT_ALLOWED, "port 22 is not on the list")
    link.settle()
    assert link.client.resets == {stream: ResetCode.NOT_ALLOWED}
    assert link.client.session.attached


def test_a_slow_reader_stops_its_writer_and_nobody_else(link):
    """A writer gets one window ahead of its reader; other streams and acknowledgements continue."""
    link.agent.consume = False
    slow, fast = link.client.session.streams.open(1), link.client.session.streams.open(2)
    total = 0
    while taken := link.client.session.streams.send(slow, bytes(100_000)):
        total += taken
        link.settle()
    assert total == len(link.agent.received[slow]) == MIB
    assert link.client.session.unacknowledged == 0
    link.client.session.streams.send(fast, b"hello")
    link.settle()
    assert link.agent.received[fast] == b"hello"
    assert link.client.writable == []
    link.agent.read(slow, MIB // 2)
    link.settle()
    assert link.client.writable == [slow]
    assert link.client.session.streams.send(slow, bytes(MIB)) == 256 * KIB


def test_a_late_owner_is_ignored(link):
    """Whatever is done to a stream that the peer has just reset has no effect, except that writing raises an error."""
    stream = link.client.session.streams.open(1)
    link.settle()
    link.agent.session.streams.reset(stream, ResetCode.GONE)
    link.settle()
    streams = link.client.session.streams
    streams.accept(stream)
    streams.reset(stream, ResetCode.CANCELLED)
    streams.consumed(stream, 5, link.now)
    for write in (lambda: streams.send(stream, b"x"), lambda: streams.send_eof(stream)):
        with pytest.raises(ConnectionLost, match="the stream has ended"):
            write()
    assert link.wire.push_up() == 0
    assert link.client.breaches == []
