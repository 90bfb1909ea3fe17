"""The live streams of a session, their numbers, and the limits on opening them."""

from __future__ import annotations

from collections.abc import Callable

from relay_core.errors import ConnectionLost
from relay_core.tunnel import frames
from relay_core.tunnel.events import DataReceived, EofReceived, Event, StreamOpened, StreamReset, StreamWritable
from relay_core.tunnel.frames import Frame, JsonObject, Target
from relay_core.tunnel.limits import MAX_STREAM_ID, MAX_U31, MAX_WINDOW_GROWTH, OPEN_RATE, Limits, Settings
from relay_core.tunnel.outcomes import Breach, ProtocolBreach, ResetCode, Role, StreamLimitReached
from relay_core.tunnel.scheduler import Scheduler
from relay_core.tunnel.stream import Stream


class StreamTable:
    """The live streams of one session.

    The client uses the numbers 1, 3, 5, ... and the agent 2, 4, 6, ..., each only once. A frame with the number of a
    closed stream is late and ignored; a frame with a number that was never used is a protocol violation.

    Args:
        role: This side's role.
        settings: This side's limits, and the size of each send queue.
        peer: The peer's limits.
        now: Monotonic seconds.
    """

    def __init__(self, role: Role, *, settings: Settings, peer: Limits, now: float) -> None:
        self._local = settings.limits
        self._peer = peer
        self._queue_limit = settings.send_queue
        self._live: dict[int, Stream] = {}
        self._next_id = 1 if role is Role.CLIENT else 2
        self._last_peer_id = self._next_id % 2 - 1  # two below the peer's first number
        self._incoming = 0
        self._tokens = float(self._local.max_streams)
        self._refilled_at = now

    def __len__(self) -> int:
        return len(self._live)

    def get(self, stream_id: int) -> Stream | None:
        """Return a live stream, or None if it is closed.

        Raises:
            ProtocolBreach: The stream never existed.
        """
        stream = self._live.get(stream_id)
        if stream is None:
            ours = stream_id % 2 == self._next_id % 2
            if not 0 < stream_id <= (self._next_id - 2 if ours else self._last_peer_id):
                raise ProtocolBreach(Breach.UNKNOWN_STREAM, str(stream_id))
        return stream

    def find(self, stream_id: int) -> Stream | None:
        """Return a live stream, or None; for the owner, whose calls may come after the stream was closed."""
        return self._live.get(stream_id)

    def open(self) -> Stream:
        """Add a stream that this side opens.

        Raises:
            StreamLimitReached: The peer's limit on open streams has been reached, or all numbers are used.
        """
        # Each side limits the streams that the other side opens, so only the streams that this side opened count here.
        if len(self._live) - self._incoming >= self._peer.max_streams or self._next_id > MAX_STREAM_ID:
            raise StreamLimitReached(f"the peer accepts at most {self._peer.max_streams} connections at a time")
        stream = self._add(self._next_id, incoming=False)
        # A number is used only once, so that late frames of a closed stream cannot reach a newer one.
        self._next_id += 2
        return stream

    def admit(self, stream_id: int, now: float) -> Stream | None:
        """Add a stream that the peer opens; return None if it opens too many or too fast.

        Raises:
            ProtocolBreach: The number belongs to this side or was used before.
        """
        if stream_id % 2 == self._next_id % 2 or stream_id <= self._last_peer_id:
            raise ProtocolBreach(Breach.STREAM_ID, str(stream_id))
        self._last_peer_id = stream_id  # also for a refused stream: its number is used, and its RST refers to it
        # A token bucket (see OPEN_RATE) that holds at most one burst.
        refill = (now - self._refilled_at) * OPEN_RATE
        self._tokens = min(float(self._local.max_streams), self._tokens + refill)
        self._refilled_at = now
        if self._incoming >= self._local.max_streams or self._tokens < 1.0:
            return None
        self._tokens -= 1.0
        self._incoming += 1
        return self._add(stream_id, incoming=True)

    def remove(self, stream: Stream) -> None:
        """Remove a stream that is finished or reset."""
        del self._live[stream.id]
        if stream.incoming:
            self._incoming -= 1

    def clear(self) -> list[Stream]:
        """Remove all streams and return them."""
        streams = list(self._live.values())
        self._live.clear()
        self._incoming = 0
        return streams

    def _add(self, stream_id: int, *, incoming: bool) -> Stream:
        stream = Stream(
            stream_id,
            incoming=incoming,
            window=self._local.window,
            credit=self._peer.window,
            queue_limit=self._queue_limit,
        )
        self._live[stream_id] = stream
        return stream


# The streams of a session: operations of its owner, and handlers of the peer's frames.
#
# A frame that violates the rules of one stream (more data than credit, data after FIN) resets that stream only. A frame
# that is invalid for every stream is a `ProtocolBreach` and ends the transport. Frames for a closed stream are ignored,
# because the peer may have sent them before it noticed that the stream was closed.


class Streams:
    """All streams of one side of a session; available as `Session.streams`.

    Args:
        table: The live streams.
        scheduler: Sends their frames.
        max_window: Maximum size of a window.
        round_trip: Returns the round trip of the path in seconds; 0 if unknown.
        emit: Called with each event.
    """

    def __init__(
        self,
        table: StreamTable,
        scheduler: Scheduler,
        *,
        max_window: int,
        round_trip: Callable[[], float],
        emit: Callable[[Event], None],
    ) -> None:
        self.closed = False
        """True if neither side may open further streams."""
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
        self._window_growth = 0
        self._emit = emit

    def __len__(self) -> int:
        return len(self._table)

    # --- operations of the owner ----------------------------------------------------------------------------------

    def open(self, target: Target, metadata: JsonObject | None = None) -> int:
        """Open a stream and return its number; data may be sent before the peer has accepted it.

        Args:
            target: Logical port or name.
            metadata: Information for the peer, at most 4 KiB of JSON.

        Raises:
            StreamLimitReached: Too many streams are open.
            ConnectionLost: The session is over or closing.
            ValueError: Target or metadata is invalid or too long.
        """
        payload = frames.encode_open(target, metadata or {})
        if self.closed:
            raise ConnectionLost("the session is over")
        if self._scheduler.control_full:
            raise StreamLimitReached("the peer has stopped acknowledging frames")
        # Data may follow before OPEN_OK, which saves a round trip, because the first frames of the session announced
        # the windows.
        stream = self._table.open()
        self._scheduler.add_control(frames.OPEN, stream.id, payload)
        return stream.id

    def accept(self, stream_id: int) -> None:
        """Accept a stream that the peer opened; has no effect if it is closed."""
        stream = self._table.find(stream_id)
        if stream is not None and stream.incoming and not stream.accepted:
            stream.accepted = True
            self._scheduler.add_control(frames.OPEN_OK, stream_id)

    def send(self, stream_id: int, data: bytes | memoryview) -> int:
        """Queue data and return the number of bytes accepted; for the rest, wait for `StreamWritable`.

        Args:
            stream_id: The stream.
            data: Not copied; must not be modified later.

        Raises:
            ConnectionLost: The stream is closed, or its sending direction has ended.
        """
        stream = self._sendable(stream_id)
        taken = stream.write(data)
        self._scheduler.schedule(stream)
        return taken

    def send_eof(self, stream_id: int) -> None:
        """End the sending direction when the queued data has been sent.

        Raises:
            ConnectionLost: The stream is closed, or its sending direction has ended.
        """
        stream = self._sendable(stream_id)
        stream.end()
        self._scheduler.schedule(stream)

    def reset(self, stream_id: int, code: ResetCode, text: str = "") -> None:
        """Close both directions at once and drop queued data, or refuse the stream; has no effect if it is closed."""
        stream = self._table.find(stream_id)
        if stream is not None:
            self._forget(stream)  # discards queued data and credit, which the peer would ignore after RST
            self._scheduler.add_control(frames.RST, stream_id, frames.encode_code(code, text))

    def consumed(self, stream_id: int, size: int, now: float) -> bool:
        """Record that `size` received bytes were written to the socket, and return their credit to the peer.

        Returns:
            True if a WINDOW frame should be sent now; always False for a closed stream.

        Raises:
            ValueError: `size` is more than was received.
        """
        stream = self._table.find(stream_id)
        credit = 0 if stream is None else stream.consume(size)
        if stream is None or not credit:
            return False
        self._scheduler.add_credit(stream_id, credit + self._grow_window(stream, credit, now))
        return True

    # --- operations of the session --------------------------------------------------------------------------------

    def end(self) -> None:
        """Close all streams, because the session is over."""
        self.closed = True
        self._window_growth = 0
        for stream in self._table.clear():
            self._scheduler.drop(stream)

    def progressed(self, stream: Stream) -> None:
        """Remove a stream if it is finished, or wake up its writer; called after data was sent or credit received."""
        if stream.finished:
            self._forget(stream)
        elif stream.unblock():
            self._emit(StreamWritable(stream.id))

    # --- frames of the peer -----------------------------------------------------------------------------------

    def _on_data(self, frame: Frame, now: float) -> None:
        stream = self._table.get(frame.stream)
        # Empty data is dropped, because a consumer would interpret b"" as the end of the stream.
        if stream is None or not frame.payload:
            return
        if stream.measured_at is None:
            stream.measured_at = now
        if stream.eof_received:
            self._fault(stream, ResetCode.PROTOCOL, "data after FIN")
        elif not stream.receive(len(frame.payload)):
            self._fault(stream, ResetCode.FLOW_CONTROL, "more data than the credit allows")
        else:
            self._emit(DataReceived(stream.id, frame.payload))

    def _on_window(self, frame: Frame, _now: float) -> None:
        amount = frames.decode_number(frames.U32, frame.payload)
        stream = self._table.get(frame.stream)
        if stream is None:
            return
        stream.credit += amount
        if stream.credit > MAX_U31:
            self._fault(stream, ResetCode.FLOW_CONTROL, "credit above the limit")
        else:
            self.progressed(stream)

    def _on_open(self, frame: Frame, now: float) -> None:
        target, metadata = frames.decode_open(frame.payload)
        # Every OPEN causes a response, so a peer that sends OPENs but no ACKs could fill the memory with responses.
        if self._scheduler.control_full:
            raise ProtocolBreach(Breach.FLOOD)
        stream = self._table.admit(frame.stream, now)
        if stream is None:
            refusal = frames.encode_code(ResetCode.LIMIT, "too many connections at once")
            self._scheduler.add_control(frames.RST, frame.stream, refusal)
        elif self.closed:  # the peer sent OPEN before it received this side's GOAWAY
            self.reset(stream.id, ResetCode.GONE, "the session is closing")
        else:
            self._emit(StreamOpened(stream.id, target, metadata))

    def _on_open_ok(self, frame: Frame, _now: float) -> None:
        stream = self._table.get(frame.stream)
        if stream is None:
            return
        if stream.incoming or stream.accepted:
            self._fault(stream, ResetCode.PROTOCOL, "accepted a stream that was not opened")
        else:
            stream.accepted = True

    def _on_fin(self, frame: Frame, _now: float) -> None:
        stream = self._table.get(frame.stream)
        if stream is None:
            return
        if stream.eof_received:
            self._fault(stream, ResetCode.PROTOCOL, "second FIN")
        else:
            stream.eof_received = True
            self._emit(EofReceived(stream.id))
            self.progressed(stream)

    def _on_rst(self, frame: Frame, _now: float) -> None:
        # Never answered with a RST, because the peer has already removed the stream.
        code, text = frames.decode_code(frame.payload)
        stream = self._table.get(frame.stream)
        if stream is not None:
            self._forget(stream)
            self._emit(StreamReset(stream.id, ResetCode(code), text))

    def _fault(self, stream: Stream, code: ResetCode, text: str) -> None:
        """Reset a stream whose rules the peer has violated; all other streams continue."""
        self.reset(stream.id, code, text)
        # The peer gets a RST. The owner gets an event, because it did not cause the reset and must close its local
        # socket.
        self._emit(StreamReset(stream.id, code, text))

    def _grow_window(self, stream: Stream, credit: int, now: float) -> int:
        if not stream.window_too_small(credit, self._round_trip(), now):
            return 0
        extra = stream.grow_window(self._max_window, MAX_WINDOW_GROWTH - self._window_growth)
        self._window_growth += extra
        return extra

    def _forget(self, stream: Stream) -> None:
        self._window_growth -= stream.window_growth  # available to the other streams again
        self._scheduler.drop(stream)
        self._table.remove(stream)

    def _sendable(self, stream_id: int) -> Stream:
        stream = self._table.find(stream_id)
        if stream is None or stream.eof_queued:
            raise ConnectionLost("the stream has ended")
        return stream
