"""Order and retransmission of sequenced frames: what is sent next, and what is sent again on the next transport."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from relay_core.tunnel import frames
from relay_core.tunnel.frames import HEADER_SIZE, U32, Buffer, pack_header
from relay_core.tunnel.limits import KIB, MAX_PENDING_CONTROL, MIB, SHARED_ACK_BYTES, SHARED_RATE, Settings
from relay_core.tunnel.outcomes import Breach, ProtocolBreach
from relay_core.tunnel.stream import Stream

# Sequence numbers: unacknowledged frames of the sender, and acknowledgements of the receiver.
#
# `ReplayBuffer` is the sending side. A frame gets its number when it is sent for the first time and is kept until the
# peer acknowledges it. After a resume, the unacknowledged frames are sent again without change.
#
# `Receipts` is the receiving side. An ACK means only that the sender may discard the frames. It does not wait for the
# consumer of a stream, unlike WINDOW.
#
# Frames are kept, not bytes: a resent frame is identical, so the receiver drops duplicates by their number alone and
# never cuts one. The cost is that a peer's limit on payloads cannot shrink during a session. Nothing is resent on the
# same transport, which is reliable and ordered: it needs neither retransmission timers nor selective acknowledgements,
# and a gap is an error of the peer. One deque for kept and one for frames to resend, instead of an index into the
# first, because an ACK can arrive while frames are being resent and would move every index.


class SentFrame(NamedTuple):
    """A sent sequenced frame; header and payload are separate buffers, so that the payload is not copied."""

    seq: int
    header: bytes
    payload: Buffer


class ReplayBuffer:
    """Frames that were sent and not yet acknowledged."""

    def __init__(self) -> None:
        self.size = 0
        """Size of all frames in bytes, including headers."""
        self.last_sent = 0
        """Sequence number of the last frame."""
        self.acked = 0
        """The peer has acknowledged all frames up to this number."""
        self._kept: deque[SentFrame] = deque()
        self._to_resend: deque[SentFrame] = deque()
        """The frames of `_kept` that have not been sent on the current transport."""

    def add(self, kind: int, stream: int, payload: Buffer) -> SentFrame:
        """Assign the next sequence number to a frame, and keep the frame until it is acknowledged."""
        self.last_sent += 1
        # Packed only once, because a frame resent after a resume must be identical byte for byte.
        frame = SentFrame(self.last_sent, pack_header(kind, stream, len(payload), self.last_sent), payload)
        self._kept.append(frame)
        self.size += HEADER_SIZE + len(payload)
        return frame

    def ack(self, seq: int) -> None:
        """Discard the frames up to `seq`; an old acknowledgement has no effect.

        Raises:
            ProtocolBreach: `seq` was never sent.
        """
        # Such a peer counts frames differently, so none of its acknowledgements can be trusted.
        if seq > self.last_sent:
            raise ProtocolBreach(Breach.ACK, f"{seq}, sent {self.last_sent}")
        kept = self._kept
        while self.acked < seq:
            self.acked += 1
            self.size -= HEADER_SIZE + len(kept.popleft().payload)
        # An ACK can arrive while the frames are being sent again: the peer had received them before the resume.
        while self._to_resend and self._to_resend[0].seq <= seq:
            self._to_resend.popleft()

    def rewind(self) -> None:
        """Mark all unacknowledged frames for sending again, on a new transport."""
        # A copy of references: the frames stay in `_kept` until they are acknowledged.
        self._to_resend = self._kept.copy()

    @property
    def has_resend(self) -> bool:
        """Whether a frame has to be sent again."""
        return bool(self._to_resend)

    def next_resend(self) -> SentFrame | None:
        """Return the next frame to send again, or None."""
        return self._to_resend.popleft() if self._to_resend else None


class Receipts:
    """Received sequence numbers, and the time to acknowledge them.

    Args:
        settings: `ack_bytes`, `ack_frames` and `ack_delay`.
    """

    def __init__(self, settings: Settings) -> None:
        self.received = 0
        """Sequence number of the last frame; all frames before it were received too."""
        self.due = False
        """True if an ACK should be sent now; otherwise it may be sent together with other frames."""
        self.deadline: float | None = None
        """Time at which an ACK becomes due."""
        self._settings = settings
        self._bytes = 0
        self._acked = 0

    @property
    def pending(self) -> bool:
        """True if an ACK would be useful."""
        return self.due or self.received > self._acked

    def is_next(self, seq: int) -> bool:
        """Return True if `seq` is the next frame, False if it is a duplicate.

        Raises:
            ProtocolBreach: Frames in between are missing.
        """
        # Transports are reliable and ordered, so a gap is an error of the peer, not a loss.
        if seq > self.received + 1:
            raise ProtocolBreach(Breach.SEQUENCE, f"{seq} after {self.received}")
        return seq > self.received

    def accept(self, size: int, now: float, *, shared: bool = False) -> None:
        """Record the next frame.

        Args:
            size: Size of the frame in bytes.
            now: Monotonic seconds.
            shared: True if several streams are open, which lowers the peer's limit on unacknowledged data.
        """
        self.received += 1
        self._bytes += size
        settings = self._settings
        # Acknowledge at half of the peer's limit, so that the ACK arrives while the peer may still send.
        ack_bytes = settings.ack_bytes
        if shared:
            ack_bytes = min(ack_bytes, SHARED_ACK_BYTES, settings.shared_in_flight // 2)
        if self._bytes >= ack_bytes or self.received - self._acked >= settings.ack_frames:
            self.make_due()
        elif self.deadline is None and not self.due:
            self.deadline = now + settings.ack_delay

    def make_due(self) -> None:
        """Make an ACK due now."""
        self.due = True
        self.deadline = None

    def tick(self, now: float) -> None:
        """Make an ACK due if its deadline has passed."""
        if self.deadline is not None and now >= self.deadline:
            self.make_due()

    def take(self) -> int:
        """Return the sequence number for an ACK that is sent now."""
        self._acked = self.received
        self._bytes = 0
        self.due = False
        self.deadline = None
        return self.received


# Limit on unacknowledged data while several streams are open, so that bulk data does not delay the other streams.
#
# Data that has been sent and not acknowledged is either on its way or in a queue of the path. Only queues delay other
# streams. So the time from a frame to its acknowledgement is measured about once per round trip. The shortest time is
# the path's own delay, and the excess is the time in queues. The amount that was in flight, divided by the time that
# its acknowledgement took, is the rate of the path. The limit is that rate, multiplied by the sum of the path's delay
# and the time that a queue may take. If queues are nearly empty, the path may be faster than this data shows, so the
# limit is doubled. A path without a delay has no bandwidth-delay product; its limit is the data that the programs need
# to work concurrently.

QUEUE_TIME = 0.002
QUEUE_SHARE = 1 / 16
"""Time for which data may wait in queues: this many seconds, plus this share of the path's delay (7.5 ms at 120 ms)."""
NEAR = 0.005
"""Delay in seconds below which a path counts as short; on a short path, the processors are the limit."""
SHORT_TIME = 0.020
SHORT_LIMIT = 8 * MIB
"""On a short path, the limit is what the path carries in this many seconds, but at most this many bytes. With less
data, each program often waits for the others: with 1 MiB, eight streams carried 0.9 times as much."""
RATES = 8
"""Number of latest measurements that are kept, which cover about one second. While no stream is interactive, the
highest of them counts, because a program that waits for a processor lowers individual measurements.
"""
MIN_SAMPLE = 128 * KIB
"""Bytes in flight that a measurement requires. The acknowledgement of less data may be delayed until more arrives."""


class InFlight:
    """Measurements of one transport; create a new object for the next transport."""

    def __init__(self) -> None:
        self.limit = 0
        """Bytes that may be in flight while no stream is interactive; 0 before the first measurement."""
        self.interactive_limit = 0
        """Bytes that may be in flight while a stream is interactive; 0 before the first measurement, and on a short
        path."""
        self._delay = 0.0
        """Shortest time to an acknowledgement."""
        self._rates: deque[float] = deque(maxlen=RATES)
        """The last measurements of the rate, in bytes per second."""
        self._sample: tuple[int, float, int] | None = None
        """Sequence number of the frame that is being measured, time at which it was sent, and bytes in flight at that
        time."""

    @property
    def is_short(self) -> bool:
        """True if the path has almost no delay, as far as it has been measured."""
        return self._delay < NEAR

    def sent(self, seq: int, size: int, now: float) -> None:
        """Record that frames were sent, unless a measurement is in progress.

        Args:
            seq: Sequence number of the last frame.
            size: Bytes in flight.
            now: Monotonic seconds.
        """
        if self._sample is None and size >= MIN_SAMPLE:
            self._sample = (seq, now, size)

    def acknowledged(self, seq: int, now: float) -> None:
        """Record an acknowledgement of the frames up to `seq`."""
        if self._sample is None or seq < self._sample[0]:
            return
        (_, sent_at, size), self._sample = self._sample, None
        delay = max(now - sent_at, 1e-6)
        self._delay = min(self._delay or delay, delay)
        if self.is_short:
            self.limit, self.interactive_limit = min(int(size / delay * SHORT_TIME), SHORT_LIMIT), 0
            return
        queue_time = QUEUE_TIME + self._delay * QUEUE_SHARE
        self._rates.append(size / delay)
        if delay - self._delay < queue_time / 2:
            self.limit = max(self.limit, 2 * size)
            self.interactive_limit = max(self.interactive_limit, 2 * size)
        else:
            self.limit = int(max(self._rates) * (self._delay + queue_time))
            # A lower rate may be that of a program that is waiting for a processor. That program's queue delays data
            # too.
            self.interactive_limit = int(self._rates[-1] * (self._delay + queue_time))


# Scheduler of sequenced frames.
#
# Frames are sent in this order:
#
#   1. frames that an earlier transport may have lost, in order of their numbers;
#   2. control frames: OPEN, OPEN_OK and RST in the order in which they were queued, then credit;
#   3. DATA and FIN in turns of `quantum` bytes for each stream: first the streams that have not used up their turn,
#      which are those that send little, then the others in round-robin order (the idea is that of FQ-CoDel, RFC 8290);
#   4. GOAWAY, when all other queues are empty.
#
# A frame is created and numbered only when a transport can send it. Until then, all credit for the same stream is
# merged, and the data of a reset stream is dropped. DATA stops at `replay_bytes` of unacknowledged frames; control
# frames may use `control_reserve` more. Both continue as soon as the peer acknowledges frames. ACKs are not limited.
#
# Why frames are numbered as late as possible: a number cannot be taken back, so a frame numbered when it was queued
# would have to be sent even if its stream has been reset since, and each credit would be a frame of its own.
#
# Alternatives to the two queues of 3:
#   * One queue in the order of arrival: a keystroke waits for all bulk data that the streams have queued (256 KiB
#     each).
#   * Plain round-robin: it waits for one turn of every bulk stream. Smaller turns shorten that, but each DATA frame is
#     a write to a local socket: with turns of 16 KiB, a receiver of eight streams spent half of its CPU time on them.
#   * Priorities: nothing shows which stream is an editor's and which one a download; both are opened in the same way. A
#     stream that sends little therefore keeps a part of its turn, and needs no declaration.
#
# What is ugly and stays: `adapt` guesses from the sizes of frames whether somebody is working interactively, and keeps
# less data in flight then. What is in the buffers of the path cannot be overtaken, whatever the order here; the guess
# costs throughput for a second when it is wrong.

INTERACTIVE_SIZE = 4 * KIB
"""Maximum size in bytes of a frame of an interactive stream."""
INTERACTIVE_TIME = 1.0
"""Seconds for which a stream counts as interactive after two such frames in a row; during that time, less data is in
flight. A single small frame may be the request for a transfer, or the last bytes of a window. A stream that then sends
a whole turn of data, or ends, no longer counts: the small frames were the beginning or the end of a transfer."""


class Scheduler:
    """Send queues of a session.

    Args:
        settings: Buffer sizes and quantum.
        max_payload: Maximum DATA payload that the peer accepts.
    """

    def __init__(self, settings: Settings, max_payload: int) -> None:
        self.replay = ReplayBuffer()
        self._max_payload = min(max_payload, settings.limits.max_payload)
        self._quantum = min(settings.quantum, self._max_payload)
        self._replay_limit = settings.replay_bytes
        self._data_limit = settings.replay_bytes
        # At least two frames, so that one can be sent while the other one waits for its ACK.
        self._shared_in_flight = max(settings.shared_in_flight, 2 * self._max_payload)
        self._in_flight = InFlight()
        self._interactive: dict[int, float] = {}
        """For each interactive stream, the time until which it counts as one; the latest time is the last one."""
        self._control_limit = settings.replay_bytes + settings.control_reserve
        self._control: deque[tuple[int, int, bytes]] = deque()
        self._credit: dict[int, int] = {}
        self._first: deque[Stream] = deque()
        """Streams with data or FIN that have a part of their turn left."""
        self._ready: deque[Stream] = deque()
        """Streams with data or FIN that have used up their turn."""
        self._framed: list[Stream] = []
        self._goaway: bytes | None = None
        self._goaway_seq: int | None = None

    @property
    def control_full(self) -> bool:
        """True if too many control frames are queued, because the peer does not acknowledge any."""
        return len(self._control) >= MAX_PENDING_CONTROL

    @property
    def has_frames(self) -> bool:
        """False if `pull` would certainly return nothing."""
        queued = self._first or self._ready or self._control or self._credit
        return bool(queued) or self._goaway is not None or self.replay.has_resend

    @property
    def goaway_acked(self) -> bool:
        """True if the peer has acknowledged GOAWAY."""
        return self._goaway_seq is not None and self.replay.acked >= self._goaway_seq

    def add_control(self, kind: int, stream_id: int, payload: bytes = b"") -> None:
        """Queue a control frame."""
        self._control.append((kind, stream_id, payload))

    def add_credit(self, stream_id: int, amount: int) -> None:
        """Queue credit for the peer; it is merged with other credit for the same stream."""
        self._credit[stream_id] = self._credit.get(stream_id, 0) + amount

    def schedule(self, stream: Stream) -> None:
        """Add a stream with data or FIN to send to the queue that it belongs to."""
        if not stream.scheduled and stream.ready_to_send:
            stream.scheduled = True
            self._queue_of(stream).append(stream)

    def drop(self, stream: Stream) -> None:
        """Discard the queued data and credit of a closed stream."""
        # Frames that have a number are kept: the peer would see a gap in the sequence.
        self._credit.pop(stream.id, None)
        self._interactive.pop(stream.id, None)
        stream.queue.clear()
        if stream.scheduled:
            stream.scheduled = False
            self._queue_of(stream).remove(stream)

    def queue_goaway(self, payload: bytes) -> None:
        """Queue GOAWAY, which is sent after all other frames."""
        self._goaway = payload

    def attach(self, peer_received: int) -> None:
        """Use a new transport: send the unacknowledged frames again, and measure the path of that transport."""
        self.replay.ack(peer_received)
        self.replay.rewind()
        self._in_flight = InFlight()

    def acknowledged(self, seq: int, now: float) -> None:
        """Discard the frames up to `seq`; raises the same errors as `ReplayBuffer.ack`."""
        self.replay.ack(seq)
        self._in_flight.acknowledged(seq, now)

    def adapt(self, streams: int, round_trip: float, now: float) -> None:
        """Adapt the limit on unacknowledged data.

        Args:
            streams: Number of open streams.
            round_trip: Round trip of the path in seconds.
            now: Monotonic seconds.
        """
        # A single stream may fill all buffers of the path. With several streams, data in these buffers delays the other
        # streams, so the limit is about the bandwidth-delay product: as measured, but at least that of a slow path. A
        # short path has no such product; there, more data only helps bulk transfers.
        measured = self._in_flight.interactive_limit if self._is_interactive(now) else self._in_flight.limit
        shared = max(self._shared_in_flight + int(round_trip * SHARED_RATE), measured)
        self._data_limit = min(shared, self._replay_limit) if streams > 1 else self._replay_limit

    def pull(self, limit: int, now: float) -> list[Buffer]:
        """Return buffers to send, in order: complete frames until they have `limit` bytes or none may be sent."""
        out: list[Buffer] = []
        size = 0
        while size < limit:
            frame = self.replay.next_resend() or self._next_control() or self._next_data(now) or self._next_goaway()
            if frame is None:
                break
            out.append(frame.header)
            if frame.payload:
                out.append(frame.payload)
            size += HEADER_SIZE + len(frame.payload)
        if self._framed:
            self._in_flight.sent(self.replay.last_sent, self.replay.size, now)
        return out

    def take_framed(self) -> list[Stream]:
        """Return the streams that have sent DATA or FIN since the last call, each once."""
        framed = list(dict.fromkeys(self._framed))
        self._framed.clear()
        return framed

    def _next_control(self) -> SentFrame | None:
        if self._control:
            kind, stream_id, payload = self._control[0]
            # Counted against the replay limit as well: an unacknowledged control frame is kept like any other.
            if self.replay.size + HEADER_SIZE + len(payload) > self._control_limit:
                return None
            self._control.popleft()
            return self.replay.add(kind, stream_id, payload)
        if self._credit and self.replay.size + HEADER_SIZE + 4 <= self._control_limit:
            stream_id = next(iter(self._credit))
            return self.replay.add(frames.WINDOW, stream_id, U32.pack(self._credit.pop(stream_id)))
        return None

    def _next_data(self, now: float) -> SentFrame | None:
        queue = self._first or self._ready
        if not queue:
            return None
        stream = queue[0]
        alone = len(self._first) + len(self._ready) == 1
        size = min(self._max_payload if alone else self._quantum, stream.queue.size)
        # Requires room for a full frame, or for all that is queued; otherwise frames would become smaller and smaller
        # near the limit.
        if self.replay.size + HEADER_SIZE + size > self._data_limit:
            return None
        queue.popleft()
        self._framed.append(stream)
        if stream.queue.size:  # data first: FIN is sent when the queue is empty
            frame = self.replay.add(frames.DATA, stream.id, stream.queue.take(size))
        else:
            frame = self.replay.add(frames.FIN, stream.id, b"")
            stream.eof_sent = True
        # A bulk transfer has used up its turn now and waits for the others. An interactive stream has not, so its next
        # data does not wait for bulk transfers.
        stream.turn = (stream.turn if queue is self._first else 0) + len(frame.payload)
        self._note_size(stream, len(frame.payload), now)
        stream.scheduled = False
        self.schedule(stream)
        return frame

    def _note_size(self, stream: Stream, size: int, now: float) -> None:
        """Record whether a stream is interactive, from the size of the data that it has just sent."""
        is_small = size <= INTERACTIVE_SIZE
        stream.messages = stream.messages + 1 if is_small else 0
        if stream.eof_sent or not (is_small or stream.turn < self._quantum):
            self._interactive.pop(stream.id, None)
        elif stream.messages > 1:
            self._interactive.pop(stream.id, None)  # so that the stream with the latest time is the last one
            self._interactive[stream.id] = now + INTERACTIVE_TIME

    def _is_interactive(self, now: float) -> bool:
        if self._interactive and next(reversed(self._interactive.values())) <= now:
            self._interactive.clear()
        return bool(self._interactive)

    def _queue_of(self, stream: Stream) -> deque[Stream]:
        return self._first if stream.turn < self._quantum else self._ready

    def _next_goaway(self) -> SentFrame | None:
        if self._goaway is None or self._control or self._credit or self._first or self._ready:
            return None
        frame = self.replay.add(frames.GOAWAY, 0, self._goaway)
        self._goaway, self._goaway_seq = None, frame.seq
        return frame
