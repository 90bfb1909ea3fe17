"""Facts about what a peer must not do, and what it costs."""

import pytest

from relay_core.tunnel import frames
from relay_core.tunnel.frames import IGNORABLE, U32, U64, encode_code, encode_frame, encode_open
from relay_core.tunnel.handshake import Attached
from relay_core.tunnel.limits import MAX_PENDING_CONTROL, Limits, Settings
from relay_core.tunnel.outcomes import Breach, Death, OverReason, ResetCode
from tests.support.sessions.tunnel_link import Link, connected


def from_client(link: Link, kind: int, payload: bytes = b"", *, stream: int = 0, seq: int | None = None) -> None:
    """Give the agent a frame that no honest client sends, with the next sequence number unless another is given."""
    number = link.agent.session.received + 1 if seq is None else seq
    data = encode_frame(kind, payload, stream=stream, seq=number)
    link.agent.session.receive_data(link.wire.epoch, data, link.now)
    link.agent.collect()


def test_a_credit_overrun_costs_the_stream():
    """More data than credit resets that stream, and leaves the others alone."""
    link = connected(agent=Settings(limits=Limits(window=100)))
    good, bad = link.client.session.streams.open(1), link.client.session.streams.open(2)
    link.agent.consume = False
    link.settle()
    from_client(link, frames.DATA, bytes(101), stream=bad)
    assert link.agent.resets == {bad: ResetCode.FLOW_CONTROL}
    from_client(link, frames.DATA, bytes(100), stream=good)
    assert len(link.agent.received[good]) == 100
    assert link.agent.session.attached


@pytest.mark.parametrize(
    ("kind", "payload", "code"),
    [
        (frames.DATA, b"x", ResetCode.PROTOCOL),
        (frames.FIN, b"", ResetCode.PROTOCOL),
        (frames.OPEN_OK, b"", ResetCode.PROTOCOL),
        (frames.WINDOW, U32.pack(2**31 - 1), ResetCode.FLOW_CONTROL),
    ],
)
def test_a_frame_that_breaks_a_streams_rules_costs_the_stream(link, kind, payload, code):
    """Data or an end after the end, an answer that was not asked for and too much credit reset one stream."""
    stream = link.client.session.streams.open(1)
    link.client.session.streams.send_eof(stream)
    link.settle()
    from_client(link, kind, payload, stream=stream)
    assert link.agent.resets == {stream: code}
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
    assert link.agent.resets == {}


@pytest.mark.parametrize(
    ("frame", "breach"),
    [
        ((frames.DATA, b"x", 1, 99), Breach.SEQUENCE),
        ((frames.DATA, b"x", 1, 0), Breach.UNKNOWN_FRAME),
        ((frames.DATA, b"x", 77, None), Breach.UNKNOWN_STREAM),
        ((frames.DATA, bytes(Limits().max_payload + 1), 1, None), Breach.FRAME_TOO_LARGE),
        ((frames.OPEN, encode_open(1, {}), 2, None), Breach.STREAM_ID),
        ((frames.OPEN, b"", 3, None), Breach.MALFORMED),
        ((frames.WINDOW, b"", 1, None), Breach.MALFORMED),
        ((frames.ACK, U64.pack(99), 0, 0), Breach.ACK),
        ((frames.PING, b"", 0, 0), Breach.MALFORMED),
        ((frames.STATUS, b"[]", 0, 0), Breach.MALFORMED),
        ((frames.HELLO, b"", 0, 0), Breach.UNKNOWN_FRAME),
        ((0x1F, b"", 0, None), Breach.UNKNOWN_FRAME),
    ],
)
def test_a_breach_costs_the_transport_and_not_the_session(link, frame, breach):
    """The transport is given up with its kind as the reason, and a resume works as if nothing had happened."""
    kind, payload, stream, seq = frame
    own = link.client.session.streams.open(1)
    link.settle()
    received = link.agent.session.received
    from_client(link, kind, payload, stream=stream, seq=seq)
    assert link.agent.dead == [(1, Death.BREACH)]
    assert breach.value in link.agent.breaches[0]
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
    assert len(link.agent.breaches) == 3


def test_breaches_with_progress_in_between_do_not_end_the_session(link):
    """Only the same place again and again is hopeless."""
    for _ in range(5):
        from_client(link, 0x1F)
        link.wire.cut()
        link.client.session.streams.open(1)
        link.resume()
        link.settle()
    assert link.agent.over is None
    assert len(link.agent.breaches) == 5


@pytest.mark.parametrize("seq", [0, None])
def test_unknown_frames_that_may_be_ignored_are_skipped(link, seq):
    """A later version may say more, in or out of sequence, without an older one ending the transport."""
    received = link.agent.session.received
    number = received + 1 if seq is None else 0
    data = encode_frame(0x1F, b"news", seq=number, flags=IGNORABLE)  # language: keep - an unknown payload
    link.agent.session.receive_data(1, data, link.now)
    assert link.agent.session.received == received + (seq is None)
    assert link.agent.session.attached


def test_a_flood_of_opens_without_acknowledgements_costs_the_transport(link):
    """What a peer makes us answer is bounded, even if it reads nothing."""
    link.agent.accept = False
    for number in range(MAX_PENDING_CONTROL + 1):
        from_client(link, frames.OPEN, encode_open(1, {}), stream=2 * number + 1)
        link.agent.session.streams.reset(2 * number + 1, ResetCode.NOT_ALLOWED)
    assert Breach.FLOOD.value in link.agent.breaches[0]
    assert link.agent.dead == [(1, Death.BREACH)]
    assert len(link.agent.session._scheduler._control) == MAX_PENDING_CONTROL


def test_duplicates_are_dropped_silently(link):
    """A frame that came before changes nothing, whatever it contains."""
    stream = link.client.session.streams.open(1)
    link.client.session.streams.send(stream, b"once")
    link.settle()
    from_client(link, frames.DATA, b"once", stream=stream, seq=link.agent.session.received)
    from_client(link, frames.RST, encode_code(1, ""), stream=stream, seq=1)
    assert link.agent.received[stream] == b"once"
    assert link.agent.resets == {}


def test_too_many_opens_are_refused_one_by_one():
    """A peer that opens more than the limit it received loses the surplus and nothing else."""
    link = connected(agent=Settings(limits=Limits(max_streams=2)))
    for stream in (1, 3, 5):
        from_client(link, frames.OPEN, encode_open(5678, {}), stream=stream)
    assert set(link.agent.opened) == {1, 3}
    link.wire.push_down()
    assert bytes(link.wire.down).count(encode_code(ResetCode.LIMIT, "too many connections at once")) == 1
    assert link.agent.session.attached
