"""Facts about a session over transports that come and go, from its first word to its last."""

import pytest

from relay_core.errors import ConnectionLost
from relay_core.tunnel import frames
from relay_core.tunnel.frames import FrameDecoder
from relay_core.tunnel.handshake import Attached
from relay_core.tunnel.limits import MIB, STALL, Settings
from relay_core.tunnel.outcomes import Death, OverReason, Refusal, ResetCode
from tests.support.sessions.tunnel_link import pattern

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
    assert link.client.session.transport_epoch == link.agent.session.transport_epoch == 2


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
    old.deliver_down()  # after the RESUME was made: the client has more than it states there
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
    assert link.agent.session.unacknowledged == 0


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
    assert link.agent.session.unacknowledged == 0
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
    """A PONG is a sign of life, and gives the round trip."""
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
    assert list(link.table) == [link.agent.session]
    link.table.sweep(link.now)
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
    link.settle()
    assert link.client.resets.get(stream) is ResetCode.GONE or link.client.over


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
    with pytest.raises(ValueError, match="the limit is"):
        link.agent.session.send_status({"a": "x" * 40_000})


def test_a_session_keeps_its_streams_until_it_is_over(link):
    """A cut detaches it, and only an abort ends its streams."""
    link.client.session.streams.open(1)
    link.settle()
    session = link.client.session
    assert (session.attached, session.epoch, session.received, session.unacknowledged) == (True, 1, 1, 0)
    link.wire.cut()
    assert (session.attached, session.over, len(session.streams), session.streams.closed) == (False, None, 1, False)
    session.abort()
    assert session.over.reason is OverReason.ABORTED
    assert (len(session.streams), session.streams.closed) == (0, True)


def test_a_received_frame_seldom_makes_a_frame(link):
    """Data that was received is acknowledged later, so that there is nothing to send until then."""
    stream = link.client.session.streams.open(1)
    link.settle()
    link.agent.session.streams.send(stream, b"x")
    assert (False, True) == (link.client.session.may_send, link.agent.session.may_send)
    data = b"".join(link.agent.session.data_to_send(1, link.now))
    link.client.session.receive_data(1, data, link.now)
    assert not link.client.session.may_send
    link.client.session.tick(link.now + Settings().ack_delay)
    assert link.client.session.may_send
