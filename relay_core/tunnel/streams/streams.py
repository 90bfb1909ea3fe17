"""The streams of a session: what the owner does with them, and what the peer's frames do to them.

Where a frame breaks the rules of one stream (credit overrun, data after the end), that stream is reset and counted, and
its neighbours notice nothing; a frame that makes no sense for any stream is a breach and costs the transport. Frames
for a stream that is gone are late and ignored, whatever they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from relay_core.errors import ConnectionLost
from relay_core.tunnel import frames, payloads
from relay_core.tunnel.events import (
    DataReceived,
    EofReceived,
    Event,
    StreamOpened,
    StreamReset,
    StreamWritable,
)
from relay_core.tunnel.frames import Frame
from relay_core.tunnel.limits import MAX_U31, MAX_WIDENING
from relay_core.tunnel.outcomes import Breach, ProtocolBreach, ResetCode, StreamLimitReached
from relay_core.tunnel.payloads import JsonObject, Target
from relay_core.tunnel.streams.scheduler import Scheduler
from relay_core.tunnel.streams.stream import Stream
from relay_core.tunnel.streams.table import StreamTable

__all__ = ["Streams"]


class Streams:
    """All streams of one side of a session, at `Session.streams`.

    Args:
        table: Which streams exist.
        scheduler: Sends what they have to say.
        max_window: Where a window stops growing.
        round_trip: Returns that of the path, in seconds; 0 while it is not known.
        emit: Takes events.
        counters: Counts what is refused to the peer.
    """

    def __init__(
        self,
        table: StreamTable,
        scheduler: Scheduler,
        *,
        max_window: int,
        round_trip: Callable[[], float],
        emit: Callable[[Event], None],
        counters: Counter[Breach | ResetCode],
    ) -> None:
        self.closed = False
        """No further stream may be opened, by either side."""
        self.handlers: dict[int, Callable[[Frame, float], None]] = {
            frames.DATA: self._on_data,
            frames.WINDOW: self._on_window,
            frames.OPEN: self._on_open,
            frames.OPEN_OK: self._on_open_ok,
            frames.FIN: self._on_fin,
            frames.RST: self._on_rst,
        }
        self._table = table
        self._scheduler = scheduler
        self._max_window = max_window
        self._round_trip = round_trip
        self._widened = 0
        self._emit = emit
        self._counters = counters

    def __len__(self) -> int:
        return len(self._table)

    def __repr__(self) -> str:
        return f"<Streams {len(self._table)} live{' closed' if self.closed else ''}>"

    # --- what the owner does ----------------------------------------------------------------------------------

    def open(self, target: Target, metadata: JsonObject | None = None) -> int:
        """Open a stream and return its number; bytes may be sent before the peer has accepted it.

        Args:
            target: Logical port or name.
            metadata: Who opens it and why, at most 4 KiB of JSON.

        Raises:
            StreamLimitReached: too many are open.
            ConnectionLost: the session is over or closing.
            ValueError: target or metadata cannot be sent.
        """
        payload = payloads.encode_open(target, metadata or {})
        if self.closed:
            raise ConnectionLost("the session is over")
        if self._scheduler.crowded:
            raise StreamLimitReached("the other side acknowledges nothing")
        stream = self._table.open()
        self._scheduler.add_control(frames.OPEN, stream.id, payload)
        return stream.id

    def accept(self, stream_id: int) -> None:
        """Accept a stream that the peer opened; no effect on one that is gone."""
        stream = self._table.find(stream_id)
        if stream is not None and stream.incoming and not stream.accepted:
            stream.accepted = True
            self._scheduler.add_control(frames.OPEN_OK, stream_id)

    def refuse(self, stream_id: int, code: ResetCode, text: str = "") -> None:
        """Refuse a stream that the peer opened, and count it; no effect on one that is gone."""
        if self._table.find(stream_id) is not None:
            self._counters[code] += 1
            self.reset(stream_id, code, text)

    def send(self, stream_id: int, data: bytes | memoryview) -> int:
        """Hand over bytes and return how many were taken; for the rest, wait for `StreamWritable`.

        Args:
            stream_id: The stream.
            data: Kept without a copy, so it must not change.

        Raises:
            ConnectionLost: the stream is gone, or its sending direction has ended.
        """
        stream = self._sendable(stream_id)
        taken = stream.write(data)
        self._scheduler.schedule(stream)
        return taken

    def send_eof(self, stream_id: int) -> None:
        """End the sending direction once what was handed over has left.

        Raises:
            ConnectionLost: the stream is gone, or its sending direction has ended.
        """
        stream = self._sendable(stream_id)
        stream.end()
        self._scheduler.schedule(stream)

    def reset(self, stream_id: int, code: ResetCode, text: str = "") -> None:
        """End both directions at once and drop what waits; no effect on a stream that is gone."""
        stream = self._table.find(stream_id)
        if stream is not None:
            self._forget(stream)
            self._scheduler.add_control(frames.RST, stream_id, payloads.encode_code(code, text))

    def consumed(self, stream_id: int, size: int, now: float) -> bool:
        """Give back the credit of `size` received bytes that the consumer has passed on; none if the stream is gone.

        A consumer that passes on half a window within one round trip is faster than the credit for more: then the
        window is widened.

        Returns:
            Whether a frame for the peer is due now.

        Raises:
            ValueError: more than was received.
        """
        stream = self._table.find(stream_id)
        credit = 0 if stream is None else stream.consumed(size)
        if stream is None or not credit:
            return False
        self._scheduler.add_credit(stream_id, credit + self._widen(stream, now))
        return True

    # --- what the session does --------------------------------------------------------------------------------

    def end(self) -> None:
        """Forget every stream: the session is over."""
        self.closed = True
        self._widened = 0
        for stream in self._table.clear():
            self._scheduler.drop(stream)

    def progressed(self, stream: Stream) -> None:
        """A stream had a turn, got credit or ended: perhaps it is finished, perhaps its writer can continue."""
        if stream.finished:
            self._forget(stream)
        elif stream.unblocked():
            self._emit(StreamWritable(stream.id))

    # --- what the peer does -----------------------------------------------------------------------------------

    def _on_data(self, frame: Frame, _now: float) -> None:
        stream = self._table.get(frame.stream)
        if stream is None or not frame.payload:
            return
        if stream.eof_received:
            self._fault(stream, ResetCode.PROTOCOL, "data after the end")
        elif not stream.receive(len(frame.payload)):
            self._fault(stream, ResetCode.FLOW_CONTROL, "more data than credit")
        else:
            self._emit(DataReceived(stream.id, frame.payload))

    def _on_window(self, frame: Frame, _now: float) -> None:
        amount = payloads.decode_u32(frame.payload)
        stream = self._table.get(frame.stream)
        if stream is None:
            return
        stream.credit += amount
        if stream.credit > MAX_U31:
            self._fault(stream, ResetCode.FLOW_CONTROL, "more credit than can be counted")
        else:
            self.progressed(stream)

    def _on_open(self, frame: Frame, now: float) -> None:
        target, metadata = payloads.decode_open(frame.payload)
        if self._scheduler.crowded:
            raise ProtocolBreach(Breach.FLOOD)
        stream = self._table.admit(frame.stream, now)
        if stream is None:
            self._counters[ResetCode.LIMIT] += 1
            refusal = payloads.encode_code(ResetCode.LIMIT, "too many connections at once")
            self._scheduler.add_control(frames.RST, frame.stream, refusal)
        elif self.closed:
            self.refuse(stream.id, ResetCode.GONE, "the session is closing")
        else:
            self._emit(StreamOpened(stream.id, target, metadata))

    def _on_open_ok(self, frame: Frame, _now: float) -> None:
        stream = self._table.get(frame.stream)
        if stream is None:
            return
        if stream.incoming or stream.accepted:
            self._fault(stream, ResetCode.PROTOCOL, "accepted what was not asked")
        else:
            stream.accepted = True

    def _on_fin(self, frame: Frame, _now: float) -> None:
        stream = self._table.get(frame.stream)
        if stream is None:
            return
        if stream.eof_received:
            self._fault(stream, ResetCode.PROTOCOL, "ended twice")
        else:
            stream.eof_received = True
            self._emit(EofReceived(stream.id))
            self.progressed(stream)

    def _on_rst(self, frame: Frame, _now: float) -> None:
        code, text = payloads.decode_reset(frame.payload)
        stream = self._table.get(frame.stream)
        if stream is not None:
            self._forget(stream)
            self._emit(StreamReset(stream.id, code, text))

    def _fault(self, stream: Stream, code: ResetCode, text: str) -> None:
        """The peer broke the rules of one stream: it loses that stream and nothing else."""
        self._counters[code] += 1
        self.reset(stream.id, code, text)
        self._emit(StreamReset(stream.id, code, text))

    def _widen(self, stream: Stream, now: float) -> int:
        last, stream.returned_at = stream.returned_at, now
        if last is None or now - last >= self._round_trip():
            return 0
        extra = stream.widen(self._max_window, MAX_WIDENING - self._widened)
        self._widened += extra
        return extra

    def _forget(self, stream: Stream) -> None:
        self._widened -= stream.widened
        self._scheduler.drop(stream)
        self._table.remove(stream)

    def _sendable(self, stream_id: int) -> Stream:
        stream = self._table.find(stream_id)
        if stream is None or stream.eof_queued:
            raise ConnectionLost("the stream has ended")
        return stream
