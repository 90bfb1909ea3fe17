import dataclasses

import pytest

from relay_core.tunnel.frames import HEADER_SIZE
from relay_core.tunnel.handshake import Attached, ClientHandshake, HelloHandshake, NotAttached, ResumeHandshake
from relay_core.tunnel.limits import VERSION, Limits, Settings
from relay_core.tunnel.messages import Greeting, Refused, Resume, Resumed, Welcome
from relay_core.tunnel.outcomes import OverReason, Refusal
from tests.support.sessions.tunnel_link import Link, connected, pattern

NONCE = b"n" * 16


def answer_to(link: Link, handshake: ClientHandshake) -> Resume:
    return Resume.decode(handshake.request[HEADER_SIZE:])


@pytest.fixture
def link() -> Link:
    """A session on its first transport."""
    return connected()


def test_a_new_session_knows_both_sides():
    """Each side has the other's limits and info, the same id and secret, and epoch 1."""
    link = connected(Settings(limits=Limits(1000, 2000, 3)), info={"host": "node-0"}, client_info={"who": "ada@laptop"})
    client, agent = link.client.session, link.agent.session
    assert agent.peer.limits == Limits(1000, 2000, 3)
    assert agent.peer.info == {"who": "ada@laptop"}
    assert client.peer.limits == Limits()
    assert client.peer.info == {"host": "node-0"}
    assert (client.id, client.secret) == (agent.id, agent.secret)
    assert client.epoch == agent.epoch == 1
    assert len(link.client.round_trips) == len(link.agent.round_trips) == 1


def test_a_cut_at_any_byte_of_a_new_sessions_handshake_is_survived():
    """The client has no session, or one that continues; another attempt always succeeds."""
    for offset in range(250):
        link = Link()
        wire = link.dial()
        moved = wire.deliver_up(offset)
        wire.push_down()
        wire.deliver_down(offset - moved)
        wire.cut()
        assert isinstance(link.resume(), Attached)
        stream = link.client.session.streams.open(1)
        link.settle()
        assert link.client.is_accepted(stream)
        assert link.client.over is None
    assert moved + len(wire.down) < offset  # every byte of both frames was a place to cut


def handshake_and_data(link: Link) -> int:
    """Begin a resume with data waiting on both sides, and return a stream."""
    stream = link.client.session.streams.open(1)
    link.settle()
    link.wire.cut()
    link.client.session.streams.send(stream, pattern(1, 0, 100))
    link.agent.session.streams.send(stream, pattern(2, 0, 100))
    return stream


@pytest.mark.parametrize("down", [False, True])
def test_a_cut_at_any_byte_of_a_resume_is_survived(down):
    """Whatever had arrived of RESUME, RESUMED and the data behind them, the next attempt continues from there."""
    for offset in range(320):
        link = connected()
        stream = handshake_and_data(link)
        wire = link.dial()
        wire.deliver_up(None if down else offset)
        wire.push_down()
        wire.deliver_down(offset if down else None)
        wire.push_up()
        wire.deliver_up(offset)
        wire.cut()
        assert isinstance(link.resume(), Attached)
        link.settle()
        assert link.agent.received[stream] == pattern(1, 0, 100)
        assert link.client.received[stream] == pattern(2, 0, 100)


def test_an_answer_may_arrive_byte_by_byte(link):
    """Cutting the handshake into pieces changes nothing."""
    stream = handshake_and_data(link)
    wire = link.dial()
    while wire.deliver_up(1):
        pass
    wire.push_down()
    while wire.deliver_down(1):
        pass
    link.settle()
    assert link.client.received[stream] == pattern(2, 0, 100)


@pytest.mark.parametrize("refusal", [refusal for refusal in Refusal if refusal.final])
def test_a_final_refusal_ends_the_session(link, refusal):
    """Another attempt cannot help, so the owner learns that the session is over, and why."""
    link.wire.cut()
    handshake = ResumeHandshake(link.client.session, NONCE)
    outcome = handshake.receive_data(Refused(refusal, "so it is").encode(), link.now)
    link.client.collect()
    assert outcome == NotAttached(refusal, "so it is")
    assert (link.client.over.reason, link.client.over.refusal) == (OverReason.REFUSED, refusal)


@pytest.mark.parametrize("refusal", [refusal for refusal in Refusal if not refusal.final])
def test_another_refusal_leaves_the_session_alone(link, refusal):
    """The transport in use continues, and the next attempt may succeed."""
    handshake = ResumeHandshake(link.client.session, NONCE)
    assert handshake.receive_data(Refused(refusal, "").encode(), link.now) == NotAttached(refusal, "")
    assert link.client.session.attached
    assert isinstance(link.resume(), Attached)


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"proof": bytes(32)}, Refusal.BAD_PROOF),
        ({"epoch": 3}, Refusal.BAD_PROOF),
        ({"received": 7}, Refusal.BAD_PROOF),
    ],
)
def test_an_answer_without_proof_leaves_the_session_alone(link, change, refusal):
    """Whoever it was, it was not the agent; the old transport continues."""
    handshake = ResumeHandshake(link.client.session, NONCE)
    genuine = Resumed.make(link.client.session.secret, answer_to(link, handshake), link.agent.session.received)
    forged = dataclasses.replace(genuine, **change)
    outcome = handshake.receive_data(forged.encode(), link.now)
    assert outcome.refusal is refusal
    assert link.client.over is None
    assert link.client.session.attached


def test_an_agent_that_has_what_was_never_sent_is_a_gap(link):
    """Such a session cannot continue, and ends with this reason."""
    handshake = ResumeHandshake(link.client.session, NONCE)
    answer = Resumed.make(link.client.session.secret, answer_to(link, handshake), 99)
    assert handshake.receive_data(answer.encode(), link.now).refusal is Refusal.SEQ_GAP
    link.client.collect()
    assert link.client.over.refusal is Refusal.SEQ_GAP


def test_an_overtaken_attempt_attaches_nothing(link):
    """The answer to an attempt that was given up comes too late."""
    link.wire.cut()
    first = link.dial()
    second = link.dial()
    first.deliver_up()
    second.deliver_up()
    second.deliver_down()
    first.deliver_down()
    assert isinstance(second.client_outcome, Attached)
    assert first.client_outcome.refusal is Refusal.STALE_EPOCH
    link.settle()
    assert link.client.session.attached


def test_an_answer_for_a_session_that_is_over_attaches_nothing(link):
    """The owner gave up while the answer was under way."""
    wire = link.dial()
    wire.deliver_up()
    link.client.session.abort()
    wire.deliver_down()
    assert wire.client_outcome.refusal is Refusal.STALE_EPOCH
    assert link.client.session.transport_epoch == 1


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK", b"\x15\x03\x03", Greeting(Limits()).encode(), bytes(30)])
def test_an_answer_that_is_none_is_malformed(link, answer):
    """A foreign answer, TLS, or a frame that no agent sends ends the attempt and nothing else."""
    for handshake in (HelloHandshake(Settings()), ResumeHandshake(link.client.session, NONCE)):
        assert handshake.receive_data(answer, link.now).refusal is Refusal.MALFORMED
    assert link.client.over is None


def test_an_agent_of_another_age_is_recognised():
    """A WELCOME of a version that this client does not speak is refused as such."""
    handshake = HelloHandshake(Settings())
    greeting = Greeting(Limits(), version=VERSION + 9, min_version=VERSION + 1)
    outcome = handshake.receive_data(Welcome(b"i" * 16, b"s" * 32, greeting).encode(), 0.0)
    assert outcome == NotAttached(Refusal.VERSION, f"the agent uses protocol version {VERSION + 9}")
