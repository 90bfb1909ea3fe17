import pytest

from relay_core.errors import ConnectionLost
from relay_core.tunnel import Attached, Breach, Death, Limits, OverReason, Refusal, ResetCode, Settings, frames
from relay_core.tunnel.frames import IGNORABLE, FrameDecoder, encode_frame
from relay_core.tunnel.limits import KIB, MAX_PENDING_CONTROL, MIB, STALL
from relay_core.tunnel.payloads import encode_code, encode_open, encode_u32, encode_u64
from tests.support.tunnel_link import Link, connected, pattern


@pytest.fixture
def link() -> Link:
    """A session on its first transport."""
    return connected()


def from_client(link: Link, kind: int, payload: bytes = b"", *, stream: int = 0, seq: int | None = None) -> None:
    """Give the agent a frame that no honest client sends, with the next sequence number unless another is given."""
    number = link.agent.session.received + 1 if seq is None else seq
    data = encode_frame(kind, payload, stream=stream, seq=number)
    link.agent.session.receive_data(link.wire.epoch, data, link.now)
    link.agent.collect()


# --- streams --------------------------------------------------------------------------------------------------


def test_bytes_go_both_ways_before_and_after_the_answer(link):
    """Data may follow an OPEN at once, and either side may open."""
    for opener, other in ((link.client, link.agent), (link.agent, link.client)):
        stream = opener.session.streams.open("tensorboard", {"who": "ada@laptop"})
        assert opener.session.streams.send(stream, b"request") == 7
        link.settle()
        assert other.opened[stream] == ("tensorboard", {"who": "ada@laptop"})
        assert other.received[stream] == b"request"
        assert stream in opener.accepted
        other.session.streams.send(stream, b"response")
        link.settle()
        assert opener.received[stream] == b"response"


@pytest.mark.parametrize("first", ["client", "agent"])
def test_half_close_works_in_both_directions(link, first):
    """Whoever ends first still hears the other, and the stream is gone when both have ended."""
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


def test_a_refused_open_is_told_with_its_reason(link):
    """The opener sees a reset with the code, the agent counts it, and its neighbours live."""
    link.agent.accept = False
    stream = link.client.session.streams.open(22)
    link.settle()
    link.agent.session.streams.refuse(stream, ResetCode.NOT_ALLOWED, "port 22 is not on the list")
    link.settle()
    assert link.client.resets == {stream: ResetCode.NOT_ALLOWED}
    assert link.agent.session.counters == {ResetCode.NOT_ALLOWED: 1}
    assert link.client.session.attached


def test_a_slow_reader_stops_its_writer_and_nobody_else(link):
    """A writer gets one window ahead of its reader; other streams and acknowledgements go on."""
    link.agent.consume = False
    slow, fast = link.client.session.streams.open(1), link.client.session.streams.open(2)
    total = 0
    while taken := link.client.session.streams.send(slow, bytes(100_000)):
        total += taken
        link.settle()
    assert total == len(link.agent.received[slow]) == MIB
    assert link.client.session._scheduler.replay.size == 0
    link.client.session.streams.send(fast, b"hello")
    link.settle()
    assert link.agent.received[fast] == b"hello"
    assert link.client.writable == []
    link.agent.read(slow, MIB // 2)
    link.settle()
    assert link.client.writable == [slow]
    assert link.client.session.streams.send(slow, bytes(MIB)) == 256 * KIB


def test_a_late_owner_is_ignored(link):
    """Whatever is done to a stream that the peer has just reset has no effect, except that writing says so."""
    stream = link.client.session.streams.open(1)
    link.settle()
    link.agent.session.streams.reset(stream, ResetCode.GONE)
    link.settle()
    streams = link.client.session.streams
    streams.accept(stream)
    streams.refuse(stream, ResetCode.CANCELLED)
    streams.reset(stream, ResetCode.CANCELLED)
    streams.consumed(stream, 5, link.now)
    for write in (lambda: streams.send(stream, b"x"), lambda: streams.send_eof(stream)):
        with pytest.raises(ConnectionLost, match="the stream has ended"):
            write()
    assert link.wire.push_up() == 0
    assert link.client.session.counters == {}


def test_too_many_opens_are_refused_one_by_one():
    """A peer that opens more than it was told loses the surplus and nothing else."""
    link = connected(agent=Settings(limits=Limits(max_streams=2)))
    for stream in (1, 3, 5):
        from_client(link, frames.OPEN, encode_open(5678, {}), stream=stream)
    assert set(link.agent.opened) == {1, 3}
    assert link.agent.session.counters == {ResetCode.LIMIT: 1}
    assert link.agent.session.attached


# --- transports -----------------------------------------------------------------------------------------------


def test_a_cut_loses_and_doubles_nothing(link):
    """What was under way when the transport died arrives once on the next."""
    stream = link.client.session.streams.open(5678)
    link.client.session.streams.send(stream, pattern(1, 0, 200_000))
    link.wire.push_up(150_000)
    link.wire.deliver_up(100_000)
    link.wire.cut()
    assert not link.client.session.attached
    link.client.session.streams.send(stream, pattern(1, 200_000, 50_000))
    assert isinstance(link.resume(), Attached)
    link.settle()
    assert link.agent.received[stream] == pattern(1, 0, 250_000)
    assert link.client.resumed == link.agent.resumed == [2]


def test_a_new_transport_may_take_over_while_the_old_one_works(link):
    """Make before break: the old one is used until the answer, then given up, and late bytes on it change nothing."""
    stream = link.client.session.streams.open(5678)
    link.agent.session.streams.open(1)
    link.settle()
    old = link.wire
    new = link.dial()
    link.agent.session.streams.send(stream, pattern(1, 0, 5000))
    link.client.session.streams.send(stream, pattern(2, 0, 5000))
    old.push_down()
    old.deliver_down()  # after the RESUME was made: the client has more than it says there
    old.push_up()
    old.deliver_up(2000)
    new.deliver_up()
    assert link.agent.dead == [(1, Death.SUPERSEDED)]
    assert link.client.dead == []
    old.deliver_up()  # the rest of what the client sent on the old one
    new.deliver_down()
    assert link.client.dead == [(1, Death.SUPERSEDED)]
    old.cut()
    assert link.client.session.attached
    assert old.push_up() == old.push_down() == 0
    link.settle()
    assert link.client.received[stream] == pattern(1, 0, 5000)
    assert link.agent.received[stream] == pattern(2, 0, 5000)
    assert link.agent.session._scheduler.replay.size == 0


def test_what_was_acknowledged_on_an_overtaken_transport_is_acknowledged_again(link):
    """Otherwise the agent would keep frames that the client has, and send them again after each resume."""
    stream = link.client.session.streams.open(1)
    link.settle()
    old, new = link.wire, link.dial()
    link.agent.session.streams.send(stream, b"x" * 100)
    old.push_down()
    old.deliver_down()
    link.client.session.streams.send(stream, b"the ACK rides along")
    old.push_up()
    new.deliver_up()
    new.deliver_down()
    link.settle()
    assert link.agent.session._scheduler.replay.size == 0
    assert link.client.received[stream] == b"x" * 100


def test_an_answer_to_a_ping_is_not_sent_on_another_transport(link):
    """It would measure nothing."""
    link.client.session.probe(link.now, 3.0)
    link.wire.push_up()
    link.wire.deliver_up()
    link.wire.cut()
    link.resume()
    link.wire.push_down()
    assert frames.PONG not in [frame.type for frame in FrameDecoder(MIB).feed(link.wire.down)]


def test_silence_ends_a_transport_and_not_the_session(link):
    """PING after 10 s, verdict after 25 s; the session waits for the next transport."""
    link.wait(10)
    assert link.wire.push_up() == 28
    link.wire.up.clear()
    link.wait(14.9)
    assert link.client.session.attached
    link.wait(0.1)
    assert link.client.dead == [(1, Death.SILENCE)]
    assert isinstance(link.resume(), Attached)


def test_an_answered_ping_keeps_a_transport_alive_and_measures_it(link):
    """A PONG is life, and tells the round trip."""
    link.client.round_trips.clear()
    link.wait(10)
    link.wire.push_up()
    link.now += 0.25
    link.wire.deliver_up()
    link.wire.push_down()
    link.wire.deliver_down()
    assert link.client.round_trips == [0.25]
    link.wait(20)
    assert link.client.session.attached


def test_a_probe_ends_a_dead_transport_quickly(link):
    """After a sleep the owner asks, and has an answer or a verdict within three seconds."""
    link.client.session.probe(link.now, 3.0)
    assert link.client.session.next_deadline() == link.now + 3.0
    link.settle()
    link.wait(3)
    assert link.client.session.attached
    link.client.session.probe(link.now, 3.0)
    link.wait(3)
    assert link.client.dead == [(1, Death.SILENCE)]


def test_a_stalled_loop_asks_before_it_condemns(link):
    """A deadline that is noticed much too late becomes a probe."""
    link.wait(25 + STALL)
    assert link.client.session.attached
    link.settle()
    link.wait(3)
    assert link.client.session.attached


def test_acknowledgements_are_delayed_and_ride_along(link):
    """A lonely frame is acknowledged after 100 ms, and at once if something else leaves anyway."""
    stream = link.client.session.streams.open(1)
    link.settle()
    link.client.session.streams.send(stream, b"x")
    link.wire.push_up()
    link.wire.deliver_up()
    assert link.wire.push_down() == 0
    assert link.agent.session.next_deadline() == pytest.approx(link.now + 0.1)
    link.agent.session.streams.send(stream, b"y")
    assert link.wire.push_down() == 21 + 28
    assert link.agent.session.next_deadline() == link.now + 10.0


# --- the end --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["client", "agent"])
def test_a_close_delivers_everything_first(link, who):
    """What was handed over arrives, then both sides know that the session is over, and why."""
    one, other = (link.client, link.agent) if who == "client" else (link.agent, link.client)
    stream = one.session.streams.open(1)
    one.session.streams.send(stream, bytes(100_000))
    one.session.close("the job has finished")
    with pytest.raises(ConnectionLost, match="over"):
        one.session.streams.open(2)
    link.settle()
    assert len(other.received[stream]) == 100_000
    assert (other.over.reason, other.over.text) == (OverReason.PEER_CLOSED, "the job has finished")
    assert one.over.reason is OverReason.CLOSED
    assert link.table.sweep(link.now) == [link.agent.session]
    assert len(link.table) == 0


def test_a_close_survives_a_cut(link):
    """The goodbye is as reliable as everything else."""
    link.client.session.close()
    link.wire.push_up()
    link.wire.cut()
    link.resume()
    link.settle()
    assert link.client.over.reason is OverReason.CLOSED
    assert link.agent.over.reason is OverReason.PEER_CLOSED


def test_a_close_of_which_only_the_confirmation_was_lost_is_done(link):
    """An agent that does not know a closing session any more has had its goodbye."""
    link.client.session.close()
    link.wire.push_up()
    link.wire.deliver_up()
    link.wire.cut()
    assert link.resume().refusal is Refusal.UNKNOWN_SESSION
    assert link.client.over.reason is OverReason.CLOSED


def test_nobody_opens_on_a_closing_session(link):
    """An OPEN that crosses a close is refused."""
    link.agent.session.close()
    stream = link.client.session.streams.open(1)
    link.wire.push_up()
    link.wire.deliver_up()
    assert link.agent.opened == {}
    assert link.agent.session.counters == {ResetCode.GONE: 1}
    link.settle()
    assert stream in link.client.resets or link.client.over


def test_a_session_expires_without_a_transport(link):
    """Only detached time counts, and the owner decides how much."""
    link.client.session.grace = 60.0
    link.wait(1)
    link.settle()
    link.wire.cut()
    assert link.client.session.next_deadline() == link.now + 60.0
    link.wait(59.9)
    assert link.client.over is None
    link.wait(0.1)
    assert link.client.over.reason is OverReason.GRACE_EXPIRED
    assert link.client.session.next_deadline() is None


def test_an_aborted_session_is_over_at_once(link):
    """Nothing more is sent or received, and the other side learns it when it resumes."""
    stream = link.agent.session.streams.open(1)
    link.agent.session.streams.send(stream, b"x")
    link.agent.session.abort("stopped")
    link.agent.collect()
    assert (link.agent.over.reason, link.agent.over.text) == (OverReason.ABORTED, "stopped")
    link.client.session.streams.open(1)
    link.wire.push_up()
    link.wire.deliver_up()
    assert link.wire.push_down() == 0
    link.wire.cut()
    link.wait(1)
    assert link.resume().refusal is Refusal.UNKNOWN_SESSION
    assert link.client.over.refusal is Refusal.UNKNOWN_SESSION
    assert link.client.over.reason is OverReason.REFUSED


# --- status ---------------------------------------------------------------------------------------------------


def test_the_newest_status_arrives_even_after_a_cut(link):
    """Statuses replace each other, and one that may be lost is sent again."""
    link.agent.session.send_status({"rank": 0, "state": "starting"})
    link.agent.session.send_status({"rank": 0, "state": "waiting"})
    link.wire.push_down()
    link.wire.cut()
    link.resume()
    link.settle()
    assert link.client.statuses == [{"rank": 0, "state": "waiting"}]


def test_a_status_that_is_too_long_is_refused_where_it_is_made(link):
    """The limit is 32 KiB."""
    with pytest.raises(ValueError, match="are allowed"):
        link.agent.session.send_status({"a": "x" * 40_000})


# --- what a peer must not do ----------------------------------------------------------------------------------


def test_a_credit_overrun_costs_the_stream():
    """More data than credit resets that stream, is counted, and leaves the others alone."""
    link = connected(agent=Settings(limits=Limits(window=100)))
    good, bad = link.client.session.streams.open(1), link.client.session.streams.open(2)
    link.agent.consume = False
    link.settle()
    from_client(link, frames.DATA, bytes(101), stream=bad)
    assert link.agent.resets == {bad: ResetCode.FLOW_CONTROL}
    assert link.agent.session.counters == {ResetCode.FLOW_CONTROL: 1}
    from_client(link, frames.DATA, bytes(100), stream=good)
    assert len(link.agent.received[good]) == 100
    assert link.agent.session.attached


@pytest.mark.parametrize(
    ("kind", "payload", "code"),
    [
        (frames.DATA, b"x", ResetCode.PROTOCOL),
        (frames.FIN, b"", ResetCode.PROTOCOL),
        (frames.OPEN_OK, b"", ResetCode.PROTOCOL),
        (frames.WINDOW, encode_u32(2**31 - 1), ResetCode.FLOW_CONTROL),
    ],
)
def test_a_frame_that_breaks_a_streams_rules_costs_the_stream(link, kind, payload, code):
    """Data or an end after the end, an answer that was not asked for and too much credit reset one stream."""
    stream = link.client.session.streams.open(1)
    link.client.session.streams.send_eof(stream)
    link.settle()
    from_client(link, kind, payload, stream=stream)
    assert link.agent.resets == {stream: code}
    assert link.agent.session.counters == {code: 1}
    assert link.agent.session.attached


@pytest.mark.parametrize("kind", [frames.DATA, frames.FIN, frames.RST, frames.WINDOW, frames.OPEN_OK])
def test_frames_for_a_gone_stream_are_late(link, kind):
    """They are received, acknowledged and otherwise ignored."""
    stream = link.client.session.streams.open(1)
    link.settle()
    link.agent.session.streams.reset(stream, ResetCode.CANCELLED)
    received = link.agent.session.received
    from_client(link, kind, b"\0\0\0\1", stream=stream)
    assert link.agent.session.received == received + 1
    assert link.agent.session.attached
    assert link.agent.session.counters == {}


@pytest.mark.parametrize(
    ("frame", "breach"),
    [
        ((frames.DATA, b"x", 1, 99), Breach.SEQUENCE),
        ((frames.DATA, b"x", 1, 0), Breach.UNKNOWN_FRAME),
        ((frames.DATA, b"x", 77, None), Breach.UNKNOWN_STREAM),
        ((frames.DATA, bytes(64 * KIB + 1), 1, None), Breach.FRAME_TOO_LARGE),
        ((frames.OPEN, encode_open(1, {}), 2, None), Breach.STREAM_ID),
        ((frames.OPEN, b"", 3, None), Breach.MALFORMED),
        ((frames.WINDOW, b"", 1, None), Breach.MALFORMED),
        ((frames.ACK, encode_u64(99), 0, 0), Breach.ACK),
        ((frames.PING, b"", 0, 0), Breach.MALFORMED),
        ((frames.STATUS, b"[]", 0, 0), Breach.MALFORMED),
        ((frames.HELLO, b"", 0, 0), Breach.UNKNOWN_FRAME),
        ((0x1F, b"", 0, None), Breach.UNKNOWN_FRAME),
    ],
)
def test_a_breach_costs_the_transport_and_not_the_session(link, frame, breach):
    """It is counted, the transport is given up, and a resume goes on as if nothing had happened."""
    kind, payload, stream, seq = frame
    own = link.client.session.streams.open(1)
    link.settle()
    received = link.agent.session.received
    from_client(link, kind, payload, stream=stream, seq=seq)
    assert link.agent.dead == [(1, Death.BREACH)]
    assert link.agent.session.counters == {breach: 1}
    assert link.agent.session.received == received
    assert link.agent.over is None
    link.wire.cut()
    link.client.session.streams.send(own, b"still here")
    assert isinstance(link.resume(), Attached)
    link.settle()
    assert link.agent.received[own] == b"still here"


def test_the_same_breach_again_and_again_ends_the_session(link):
    """A frame that cannot be accepted would come back after each resume, so three times is enough."""
    for _ in range(3):
        assert link.agent.over is None
        from_client(link, 0x1F)
        link.wire.cut()
        link.resume()
    assert link.agent.over.reason is OverReason.BREACH
    assert link.agent.session.counters == {Breach.UNKNOWN_FRAME: 3}


def test_breaches_with_progress_in_between_do_not_end_the_session(link):
    """Only the same place again and again is hopeless."""
    for _ in range(5):
        from_client(link, 0x1F)
        link.wire.cut()
        link.client.session.streams.open(1)
        link.resume()
        link.settle()
    assert link.agent.over is None
    assert link.agent.session.counters == {Breach.UNKNOWN_FRAME: 5}


@pytest.mark.parametrize("seq", [0, None])
def test_unknown_frames_that_may_be_ignored_are_skipped(link, seq):
    """A later version may say more, in or out of sequence, without an older one ending the transport."""
    received = link.agent.session.received
    number = received + 1 if seq is None else 0
    data = encode_frame(0x1F, b"news", seq=number, flags=IGNORABLE)
    link.agent.session.receive_data(1, data, link.now)
    assert link.agent.session.received == received + (seq is None)
    assert link.agent.session.attached


def test_a_flood_of_opens_without_acknowledgements_costs_the_transport(link):
    """What a peer makes us answer is bounded, even if it reads nothing."""
    link.agent.accept = False
    for number in range(MAX_PENDING_CONTROL + 1):
        from_client(link, frames.OPEN, encode_open(1, {}), stream=2 * number + 1)
        link.agent.session.streams.refuse(2 * number + 1, ResetCode.NOT_ALLOWED)
    assert link.agent.session.counters[Breach.FLOOD] == 1
    assert link.agent.dead == [(1, Death.BREACH)]
    assert len(link.agent.session._scheduler._control) == MAX_PENDING_CONTROL


def test_duplicates_are_dropped_silently(link):
    """A frame that came before changes nothing, whatever it says."""
    stream = link.client.session.streams.open(1)
    link.client.session.streams.send(stream, b"once")
    link.settle()
    from_client(link, frames.DATA, b"once", stream=stream, seq=link.agent.session.received)
    from_client(link, frames.RST, encode_code(1, ""), stream=stream, seq=1)
    assert link.agent.received[stream] == b"once"
    assert link.agent.resets == {}


def test_a_session_describes_itself_in_one_line(link):
    """repr() shows role, state, epoch, streams and sequence numbers, and no secret."""
    link.client.session.streams.open(1)
    link.settle()
    session = link.client.session
    assert repr(session) == (
        "<Session client 00010203 attached epoch=1 streams=1 received=1 <ReplayBuffer 1..1 0 bytes>>"
    )
    link.wire.cut()
    assert " detached " in repr(session)
    assert repr(session.streams) == "<Streams 1 live>"
    session.abort()
    assert " aborted " in repr(session)
    assert repr(session.streams) == "<Streams 0 live closed>"
