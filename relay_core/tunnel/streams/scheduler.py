"""Scheduler of sequenced frames.

Frames are sent in this order:

  1. frames that an earlier transport may have lost, in order of their numbers;
  2. control frames: OPEN, OPEN_OK and RST in the order in which they were queued, then credit;
  3. DATA and FIN in turns of `quantum` bytes for each stream: first the streams that have not used up their turn, which
     are those that send little, then the others in round-robin order (the idea is that of FQ-CoDel, RFC 8290);
  4. GOAWAY, when all other queues are empty.

A frame is created and numbered only when a transport can send it. Until then, all credit for the same stream is
merged, and the data of a reset stream is dropped. DATA stops at `replay_bytes` of unacknowledged frames; control frames
may use `control_reserve` more. Both continue as soon as the peer acknowledges frames. ACKs are not limited.
"""

from __future__ import annotations

from collections import deque

from relay_core.tunnel import frames
from relay_core.tunnel.frames import HEADER_SIZE, Buffer
from relay_core.tunnel.limits import KIB, MAX_PENDING_CONTROL, SHARED_RATE, Settings
from relay_core.tunnel.payloads import encode_u32
from relay_core.tunnel.streams.in_flight import InFlight
from relay_core.tunnel.streams.replay import ReplayBuffer, SentFrame
from relay_core.tunnel.streams.stream import Stream

__all__ = ["Scheduler"]

INTERACTIVE_SIZE = 4 * KIB
"""Maximum size in bytes of a frame of an interactive stream."""
INTERACTIVE_TIME = 1.0
"""Seconds for which a stream counts as interactive after two such frames in a row; during that time, less data is in
flight. A single small frame may be the request for a transfer, or the last bytes of a window."""


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
        self._interactive_until = 0.0
        """Time until which some stream counts as interactive."""
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

    def __repr__(self) -> str:
        ready = len(self._first) + len(self._ready)
        return f"<Scheduler control={len(self._control)} credit={len(self._credit)} ready={ready}>"

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
        interactive = now < self._interactive_until
        measured = self._in_flight.interactive_limit if interactive else self._in_flight.limit
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
            return self.replay.add(frames.WINDOW, stream_id, encode_u32(self._credit.pop(stream_id)))
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
        stream.messages = stream.messages + 1 if len(frame.payload) <= INTERACTIVE_SIZE else 0
        if stream.messages > 1:
            self._interactive_until = now + INTERACTIVE_TIME
        # A bulk transfer has used up its turn now and waits for the others. An interactive stream has not, so its next
        # data does not wait for bulk transfers.
        stream.turn = (stream.turn if queue is self._first else 0) + len(frame.payload)
        stream.scheduled = False
        self.schedule(stream)
        return frame

    def _queue_of(self, stream: Stream) -> deque[Stream]:
        return self._first if stream.turn < self._quantum else self._ready

    def _next_goaway(self) -> SentFrame | None:
        if self._goaway is None or self._control or self._credit or self._first or self._ready:
            return None
        frame = self.replay.add(frames.GOAWAY, 0, self._goaway)
        self._goaway, self._goaway_seq = None, frame.seq
        return frame
