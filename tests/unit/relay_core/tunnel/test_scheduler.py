from collections import Counter

import pytest

from relay_core.tunnel import frames
from relay_core.tunnel.frames import Frame, FrameDecoder
from relay_core.tunnel.limits import KIB, MAX_PENDING_CONTROL, MIB, Limits, Settings
from relay_core.tunnel.scheduler import SHORT_LIMIT, Scheduler
from relay_core.tunnel.stream import Stream

SETTINGS = Settings(
    limits=Limits(max_payload=100), replay_bytes=1000, control_reserve=8 * KIB, send_queue=MIB, quantum=10
)


def pulled(scheduler: Scheduler, limit: int = MIB) -> list[Frame]:
    return list(FrameDecoder(MIB).feed(b"".join(scheduler.pull(limit, 0.0))))


def writing(scheduler: Scheduler, stream_id: int, size: int, *, end: bool = False) -> Stream:
    stream = Stream(stream_id, incoming=False, window=MIB, credit=MIB, queue_limit=MIB)
    stream.write(bytes([stream_id]) * size)
    if end:
        stream.end()
    scheduler.schedule(stream)
    return stream


def kinds(sent: list[Frame]) -> list[tuple[int, int]]:
    return [(frame.type, frame.stream) for frame in sent]


@pytest.fixture
def scheduler() -> Scheduler:
    """A scheduler of small frames."""
    return Scheduler(SETTINGS, max_payload=100)


def test_control_goes_before_data_and_goodbye_last(scheduler):
    """OPEN, OPEN_OK and RST in the order they were asked for, then credit, then streams, then GOAWAY."""
    scheduler.queue_goaway(b"\0\0")
    writing(scheduler, 1, 5, end=True)
    scheduler.add_credit(4, 7)
    scheduler.add_control(frames.OPEN, 1, b"target")
    scheduler.add_control(frames.RST, 2, b"\0\1")
    sent = pulled(scheduler)
    assert kinds(sent) == [
        (frames.OPEN, 1),
        (frames.RST, 2),
        (frames.WINDOW, 4),
        (frames.DATA, 1),
        (frames.FIN, 1),
        (frames.GOAWAY, 0),
    ]
    assert [frame.seq for frame in sent] == [1, 2, 3, 4, 5, 6]


def test_credit_that_waits_is_merged(scheduler):
    """Two gifts of credit to one stream leave as one WINDOW."""
    scheduler.add_credit(1, 7)
    scheduler.add_credit(3, 1)
    scheduler.add_credit(1, 5)
    assert [(frame.stream, frame.payload) for frame in pulled(scheduler)] == [(1, b"\0\0\0\x0c"), (3, b"\0\0\0\x01")]


def test_a_stream_alone_sends_full_frames(scheduler):
    """Nobody waits, so frames are as large as the peer takes them."""
    writing(scheduler, 1, 250)
    assert [len(frame.payload) for frame in pulled(scheduler)] == [100, 100, 50]


def test_streams_take_turns(scheduler):
    """While several have something to send, each sends one turn and goes to the back."""
    writing(scheduler, 1, 30)
    writing(scheduler, 3, 25, end=True)
    assert [(frame.stream, len(frame.payload)) for frame in pulled(scheduler)] == [
        (1, 10),
        (3, 10),
        (1, 10),
        (3, 10),
        (1, 10),
        (3, 5),
        (3, 0),
    ]


@pytest.mark.parametrize(("peer", "own", "expected"), [(50, 100, 50), (500, 100, 100)])
def test_payloads_obey_both_sides(peer, own, expected):
    """A frame is never larger than the peer takes, nor than our own buffers are made for."""
    scheduler = Scheduler(SETTINGS, max_payload=peer)
    writing(scheduler, 1, 1000)
    assert len(pulled(scheduler, 1)[0].payload) == expected


def test_sixty_four_streams_share_fairly():
    """Each of 64 bulk streams gets its part of seven megabytes, within a turn."""
    scheduler = Scheduler(Settings(), max_payload=64 * KIB)
    for stream_id in range(1, 129, 2):
        writing(scheduler, stream_id, 512 * KIB)
    shares = Counter()
    for frame in pulled(scheduler, 7 * MIB):
        shares[frame.stream] += len(frame.payload)
    assert len(shares) == 64
    assert max(shares.values()) - min(shares.values()) <= Settings().quantum


def test_a_small_write_does_not_wait_for_bulk_transfers():
    """A 200-byte request leaves before everything that bulk streams have queued, also if it is not the first one."""
    scheduler = Scheduler(Settings(), max_payload=64 * KIB)
    writing(scheduler, 1, MIB)
    writing(scheduler, 3, MIB)
    pulled(scheduler, 1)
    pulled(scheduler, 1)
    small = writing(scheduler, 5, 200)
    assert [(5, 200), (1, 64 * KIB)] == [(f.stream, len(f.payload)) for f in pulled(scheduler, 64 * KIB)]
    small.write(bytes(200))
    scheduler.schedule(small)
    assert [(5, 200), (3, 64 * KIB)] == [(f.stream, len(f.payload)) for f in pulled(scheduler, 64 * KIB)]


def test_many_small_writes_get_no_more_than_a_bulk_transfer(scheduler):
    """A stream that writes 6 bytes whenever it can has used up its turn of 10 bytes with every second one."""
    writing(scheduler, 1, 200)
    small = writing(scheduler, 3, 6)
    shares = Counter()
    for _ in range(20):
        (frame,) = pulled(scheduler, 1)
        shares[frame.stream] += len(frame.payload)
        scheduler.replay.ack(frame.seq)
        if not small.queue.size:
            small.write(bytes(6))
            scheduler.schedule(small)
    assert shares[3] <= shares[1] + 2 * SETTINGS.quantum


def test_less_is_in_flight_while_a_stream_is_interactive():
    """On a short path, the limit shrinks for a second after a stream has sent its second small message in a row."""
    scheduler = on_a_short_path()
    small = writing(scheduler, 3, 200)
    scheduler.pull(1, 2.0)
    assert limit_at(scheduler, 2.0) == SHORT_LIMIT
    small.write(bytes(200))
    scheduler.schedule(small)
    scheduler.pull(1, 2.0)
    assert limit_at(scheduler, 2.9) < Settings().shared_in_flight + 32 * KIB
    assert limit_at(scheduler, 3.0) == SHORT_LIMIT


@pytest.mark.parametrize("end", ["data", "FIN"])
def test_small_messages_at_the_beginning_or_the_end_of_a_transfer_are_not_interactive(end):
    """A request of two small writes, and the last bytes of a transfer: neither slows the transfers beside it down."""
    scheduler = on_a_short_path()
    stream = writing(scheduler, 3, 200)
    scheduler.pull(1, 2.0)
    stream.write(bytes(200))
    scheduler.schedule(stream)
    scheduler.pull(1, 2.0)
    assert limit_at(scheduler, 2.0) < SHORT_LIMIT
    if end == "data":
        stream.write(bytes(Settings().quantum))
    else:
        stream.end()
    scheduler.schedule(stream)
    scheduler.pull(1, 2.0)
    assert limit_at(scheduler, 2.0) == SHORT_LIMIT


def on_a_short_path() -> Scheduler:
    """Return a scheduler that has measured its path."""
    settings = Settings()
    scheduler = Scheduler(settings, max_payload=settings.limits.max_payload)
    writing(scheduler, 1, MIB)
    scheduler.pull(settings.shared_in_flight, 1.0)
    scheduler.acknowledged(scheduler.replay.last_sent, 1.0001)
    return scheduler


def limit_at(scheduler: Scheduler, now: float) -> int:
    """Return the limit on unacknowledged data while two streams are open."""
    scheduler.adapt(2, 0.001, now)
    return scheduler._data_limit


def test_data_stops_at_the_replay_limit_and_control_does_not(scheduler):
    """Without acknowledgements data waits, while control still has its reserve, and that has an end too."""
    stream = writing(scheduler, 1, 5000)
    assert sum(len(frame.payload) for frame in pulled(scheduler)) == 800
    assert scheduler.replay.size == 960
    for _ in range(MAX_PENDING_CONTROL):
        scheduler.add_control(frames.RST, 2, b"\0\1")
    assert scheduler.control_full
    sent = pulled(scheduler)
    assert {frame.type for frame in sent} == {frames.RST}
    assert scheduler.replay.size <= SETTINGS.replay_bytes + SETTINGS.control_reserve
    assert pulled(scheduler) == []
    while stream.queue.size:
        scheduler.replay.ack(scheduler.replay.last_sent)
        sent += pulled(scheduler)
    assert kinds(sent).count((frames.RST, 2)) == MAX_PENDING_CONTROL
    assert sum(len(frame.payload) for frame in sent if frame.type == frames.DATA) == 4200


def test_credit_waits_for_room_in_the_reserve(scheduler):
    """A peer that acknowledges nothing gets no credit either, until it does."""
    while scheduler.replay.size + 24 <= SETTINGS.replay_bytes + SETTINGS.control_reserve:
        scheduler.add_control(frames.RST, 2, b"\0\1")
        pulled(scheduler)
    scheduler.add_credit(4, 9)
    assert pulled(scheduler) == []
    scheduler.replay.ack(2)
    assert kinds(pulled(scheduler)) == [(frames.WINDOW, 4)]


def test_after_a_rewind_nothing_new_overtakes_the_old(scheduler):
    """Frames that may be lost leave first, with their old numbers."""
    writing(scheduler, 1, 150)
    first = pulled(scheduler)
    scheduler.replay.ack(1)
    scheduler.replay.rewind()
    scheduler.add_control(frames.RST, 2, b"\0\1")
    again = pulled(scheduler)
    assert again[0] == first[1]
    assert kinds(again[1:]) == [(frames.RST, 2)]
    assert again[1].seq == 3


def test_a_dropped_stream_sends_nothing_more(scheduler):
    """What was queued, and credit to be given, is forgotten."""
    stream = writing(scheduler, 1, 50)
    scheduler.add_credit(1, 5)
    scheduler.drop(stream)
    assert pulled(scheduler) == []
    assert stream.queue.size == 0
    assert not scheduler.has_frames


def test_the_limit_is_overshot_by_no_more_than_the_last_frame(scheduler):
    """A frame that begins below the limit leaves whole, and no other follows."""
    writing(scheduler, 1, 500)
    assert len(pulled(scheduler, 1)) == 1
    assert len(pulled(scheduler, 121)) == 2


def test_a_stream_that_had_a_turn_is_reported_once(scheduler):
    """take_framed() names the streams whose queue has moved."""
    stream = writing(scheduler, 1, 250, end=True)
    assert len(pulled(scheduler)) == 4
    assert scheduler.take_framed() == [stream]
    assert scheduler.take_framed() == []


def test_a_goodbye_is_done_when_it_is_acknowledged(scheduler):
    """Not when it is asked for, and not when it leaves."""
    scheduler.queue_goaway(b"\0\0")
    assert not scheduler.goaway_acked
    pulled(scheduler)
    assert not scheduler.goaway_acked
    scheduler.replay.ack(1)
    assert scheduler.goaway_acked
