"""Which sequenced frame leaves next.

  1. frames that an earlier transport may have lost, in their order (nothing newer may overtake them);
  2. control: OPEN, OPEN_OK, RST as they were asked for, then credit;
  3. DATA and FIN, stream by stream in a circle: `turn` bytes of one stream while another waits, a full frame
     while it is alone;
  4. GOAWAY, once nothing else is left.

Nothing is numbered or framed before a transport asks for it, so what waits can still be merged (credit) or dropped (a
reset stream's data). Data stops at `replay_bytes` of unacknowledged frames; control may use `control_reserve` more.
Neither can stop for good: acknowledgements are unsequenced and wait for nothing.
"""

from __future__ import annotations

from collections import deque

from relay_core.tunnel import frames
from relay_core.tunnel.frames import HEADER_SIZE, Buffer
from relay_core.tunnel.limits import COMPANY_RATE, MAX_PENDING_CONTROL, Settings
from relay_core.tunnel.payloads import encode_u32
from relay_core.tunnel.streams.replay import ReplayBuffer, SentFrame
from relay_core.tunnel.streams.stream import Stream

__all__ = ["Scheduler"]


class Scheduler:
    """The sending half of a session.

    Args:
        settings: Buffer sizes and turn.
        max_payload: The largest DATA payload the peer takes.
    """

    def __init__(self, settings: Settings, max_payload: int) -> None:
        self.replay = ReplayBuffer()
        self._max_payload = min(max_payload, settings.limits.max_payload)
        self._turn = min(settings.turn, self._max_payload)
        self._replay_limit = settings.replay_bytes
        self._data_limit = settings.replay_bytes
        self._in_company = max(settings.in_company, 2 * self._max_payload)
        self._control_limit = settings.replay_bytes + settings.control_reserve
        self._control: deque[tuple[int, int, bytes]] = deque()
        self._credit: dict[int, int] = {}
        self._ready: deque[Stream] = deque()
        self._framed: list[Stream] = []
        self._goodbye: bytes | None = None
        self._goodbye_seq: int | None = None

    def __repr__(self) -> str:
        return f"<Scheduler control={len(self._control)} credit={len(self._credit)} ready={len(self._ready)}>"

    @property
    def crowded(self) -> bool:
        """Whether so many control frames wait for acknowledgements that nobody should cause any more."""
        return len(self._control) >= MAX_PENDING_CONTROL

    @property
    def goodbye_acked(self) -> bool:
        """Whether the peer has our GOAWAY."""
        return self._goodbye_seq is not None and self.replay.acked >= self._goodbye_seq

    def add_control(self, kind: int, stream_id: int, payload: bytes = b"") -> None:
        """Queue a control frame."""
        self._control.append((kind, stream_id, payload))

    def add_credit(self, stream_id: int, amount: int) -> None:
        """Give credit back with the next WINDOW of this stream."""
        self._credit[stream_id] = self._credit.get(stream_id, 0) + amount

    def schedule(self, stream: Stream) -> None:
        """Put a stream with something to send into the circle."""
        if not stream.scheduled and stream.wants_turn:
            stream.scheduled = True
            self._ready.append(stream)

    def drop(self, stream: Stream) -> None:
        """Forget what a gone stream wanted to send; what has been framed stays framed."""
        self._credit.pop(stream.id, None)
        stream.queue.clear()
        if stream.scheduled:
            stream.scheduled = False
            self._ready.remove(stream)

    def say_goodbye(self, payload: bytes) -> None:
        """Send GOAWAY after everything else."""
        self._goodbye = payload

    def share(self, streams: int, round_trip: float) -> None:
        """Adapt to how many streams there are, and to how long their bytes are under way, in seconds.

        One stream alone may fill every buffer between here and its consumer. With others about, what is under way makes
        them wait, so it is kept to what the path itself holds.
        """
        shared = self._in_company + int(round_trip * COMPANY_RATE)
        self._data_limit = min(shared, self._replay_limit) if streams > 1 else self._replay_limit

    def pull(self, limit: int) -> list[Buffer]:
        """Return buffers to send, in order, until they hold `limit` bytes or nothing may leave; frames stay whole."""
        out: list[Buffer] = []
        size = 0
        while size < limit:
            frame = self.replay.next_again() or self._next_control() or self._next_data() or self._next_goodbye()
            if frame is None:
                break
            out.append(frame.header)
            if frame.payload:
                out.append(frame.payload)
            size += HEADER_SIZE + len(frame.payload)
        return out

    def take_framed(self) -> list[Stream]:
        """Return the streams that had a turn since the last call, each once however many turns it had."""
        framed = list(dict.fromkeys(self._framed))
        self._framed.clear()
        return framed

    def _next_control(self) -> SentFrame | None:
        if self._control:
            kind, stream_id, payload = self._control[0]
            if self.replay.size + HEADER_SIZE + len(payload) > self._control_limit:
                return None
            self._control.popleft()
            return self.replay.add(kind, stream_id, payload)
        if self._credit and self.replay.size + HEADER_SIZE + 4 <= self._control_limit:
            stream_id = next(iter(self._credit))
            return self.replay.add(frames.WINDOW, stream_id, encode_u32(self._credit.pop(stream_id)))
        return None

    def _next_data(self) -> SentFrame | None:
        ready = self._ready
        if not ready:
            return None
        size = self._turn if len(ready) > 1 else self._max_payload
        if self.replay.size + HEADER_SIZE + size > self._data_limit:
            return None
        stream = ready.popleft()
        self._framed.append(stream)
        if stream.queue.size:
            frame = self.replay.add(frames.DATA, stream.id, stream.queue.take(size))
        else:
            frame = self.replay.add(frames.FIN, stream.id, b"")
            stream.eof_sent = True
        stream.scheduled = stream.wants_turn
        if stream.scheduled:
            ready.append(stream)
        return frame

    def _next_goodbye(self) -> SentFrame | None:
        if self._goodbye is None or self._control or self._credit or self._ready:
            return None
        frame = self.replay.add(frames.GOAWAY, 0, self._goodbye)
        self._goodbye, self._goodbye_seq = None, frame.seq
        return frame
