"""Driver of a session's state machine: connects it to transports, timers and the users of its streams.

All calls are made in one event loop, and events are handled without an `await` after the call that caused them, so the
session needs no locks. The driver takes data from the session only when the socket accepts it, so that urgent frames
are sent before queued bulk data. Usually the data is sent in the same call that queued it; if the socket is full, a
writing task waits for room.

Why events are handled at once instead of in a queue between two tasks: a queue would need a limit of its own, and a
task switch for each message. Sending from the call that has queued data is the same decision in the other direction.
Together they made a round trip of 200 bytes 13 % shorter (846 to 735 us, medians, side by side) when they were
introduced. The price is reentrancy: a handler may call the session, whose events are then handled by the loop that is
already running. `_dispatching` and `_more` exist for that alone, and no handler may assume that an event it has caused
has been handled when its call returns.

The writing task is still needed: only a coroutine can wait for room in the socket. `_idle` hands the transport back and
forth between the two ways of sending, so that never both of them write.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping

from relay_core.errors import ConnectionLost, RelayDebugError
from relay_core.net.memory import keep_freed_memory
from relay_core.net.session.stream import SessionStream, StreamBroken
from relay_core.net.session.transport import Transport
from relay_core.net.tasks import DeadlineTimer, first_completed, run_together
from relay_core.tunnel import events
from relay_core.tunnel.frames import Target
from relay_core.tunnel.outcomes import OverReason, ResetCode
from relay_core.tunnel.session import Session

WRITE_SIZE = 128 * 1024
"""Bytes taken from the session at a time: enough to fill TLS records, few enough that urgent frames wait only
briefly."""


class SessionDriver:
    """The I/O of one session, and the `StreamOwner` of its streams.

    Args:
        session: The state machine, attached to its first transport.
        on_open: Called with each stream that the peer opens and its event; must accept or refuse the stream.
        on_status: Called with each status from the peer.
        on_round_trip: Called with each measured round trip, in seconds.
        on_streams: Called when the number of streams has changed.
        on_over: Called when the session is over.
    """

    def __init__(
        self,
        session: Session,
        *,
        on_open: Callable[[SessionStream, events.StreamOpened], None] | None = None,
        on_status: Callable[[Mapping[str, object]], None] = lambda _status: None,
        on_round_trip: Callable[[float], None] = lambda _seconds: None,
        on_streams: Callable[[], None] = lambda: None,
        on_over: Callable[[], None] = lambda: None,
    ) -> None:
        self.session = session
        keep_freed_memory()
        self._now = asyncio.get_running_loop().time
        self.received_at = self._now()
        """When data was last received from the peer, in the loop's time."""
        self.over = asyncio.Event()
        """Set when the session is over; `session.over` has the reason."""
        self.peer_status: Mapping[str, object] | None = None
        """The peer's last status, if it has sent one."""
        self._on_open = on_open
        self._on_status = on_status
        self._on_round_trip = on_round_trip
        self._on_streams = on_streams
        self._on_over = on_over
        self._streams: dict[int, SessionStream] = {}
        self._work = asyncio.Event()
        """Set when there is work for the writing tasks."""
        self._idle: tuple[Transport, int] | None = None
        """The transport whose writing task is waiting for work, and its epoch."""
        self._dispatching = False
        self._more = False
        """True if an event handler has given the session data to send."""
        self._transports: dict[int, Transport] = {}
        self._deaths: dict[int, str] = {}
        self._timer = DeadlineTimer(self._tick)
        self._timer.set(self.session.next_deadline())

    @property
    def streams(self) -> int:
        """Number of streams in use."""
        return len(self._streams)

    # Transports:

    async def run_transport(self, transport: Transport, epoch: int, first: bytes = b"", reply: bytes = b"") -> str:
        """Use a transport for the session until it closes; return the reason as text.

        Args:
            transport: A transport after its handshake; it is closed at the end.
            epoch: The number of the transport in this session.
            first: Bytes that were received together with the end of the handshake.
            reply: Bytes to send before anything else.
        """
        self._transports[epoch] = transport
        try:
            if reply:
                await transport.send([reply])
            self._receive(epoch, first)
            reading = transport.deliver_to(functools.partial(self._receive, epoch))
            await run_together(reading, self._write(transport, epoch))
        except RelayDebugError as error:
            # The session's own reason, such as a ping without an answer, is more specific than the error of its abort.
            code = getattr(error, "code", 1006)
            reason = self._deaths.pop(epoch, "") or getattr(error, "reason", "") or f"{error.sentence} ({code})"
        else:
            reason = self._deaths.pop(epoch, "") or "the session is over"
        finally:  # also if cancelled: the session must know that this transport is lost
            self._transports.pop(epoch, None)
            if self._idle == (transport, epoch):
                self._idle = None
            self.session.transport_lost(epoch, self._now())
            self.follow_up()
            if self.session.over:  # the peer must still receive the frames that ended the session
                await transport.close()
            transport.abort()
        return reason

    async def _write(self, transport: Transport, epoch: int) -> None:
        """Send the session's data whenever the transport accepts it; raise when the session stops using it."""
        while True:
            await transport.drain()
            # Cleared before filling, because an event handler that runs during `_fill` may set it again.
            self._work.clear()
            self._fill(transport, epoch)
            if self._is_detached(epoch):
                raise ConnectionLost("the transport was superseded", code=1000)
            if transport.has_room:
                self._idle = (transport, epoch)
                await self._work.wait()

    def _fill(self, transport: Transport, epoch: int) -> None:
        """Send as much as the transport accepts now."""
        size = WRITE_SIZE
        while (size >= WRITE_SIZE or self._more) and transport.has_room:
            self._more = False
            buffers = self.session.data_to_send(epoch, self._now(), WRITE_SIZE)
            if buffers:
                transport.write(buffers)
            # Sending makes room in the session's queues, so paused streams may resume and queue more data in their
            # event handlers. If none did, a short result means that the queues are empty.
            self._dispatch()
            size = sum(map(len, buffers))

    def _is_detached(self, epoch: int) -> bool:
        """Whether the session will not send anything more on this transport."""
        return epoch in self._deaths or self.session.over is not None

    def _receive(self, epoch: int, data: bytes) -> None:
        self.received_at = self._now()
        self.session.receive_data(epoch, data, self.received_at)
        self.follow_up()

    # Called by the owner:

    def open(self, target: Target, metadata: Mapping[str, object] | None = None) -> SessionStream:
        """Open a stream that can be written to immediately; it breaks if the peer refuses it.

        Raises:
            ConnectionLost: the session is over.
            StreamLimitReached: too many are open.
        """
        stream = self._add(self.session.streams.open(target, metadata))
        self.follow_up()
        return stream

    def accept(self, stream: SessionStream) -> None:
        """Accept a stream that the peer opened."""
        self.session.streams.accept(stream.id)
        self.follow_up()

    def refuse(self, stream: SessionStream, code: ResetCode, text: str) -> None:
        """Refuse a stream that the peer opened."""
        self.reset(stream.id, code, text)

    def send_status(self, status: Mapping[str, object]) -> None:
        """Send the peer the current status; without a transport, only the latest one is kept."""
        self.session.send_status(status)
        self.follow_up()

    def probe(self, seconds: float) -> None:
        """Ping the peer; if it does not answer within `seconds`, the transport is dead."""
        self.session.probe(self._now(), seconds)
        self.follow_up()

    @contextlib.contextmanager
    def joining_writes(self) -> Iterator[None]:
        """Send what streams add within the block in one message, at the end of the block.

        Each message costs a TLS record and a system call here, in the relay and at the peer.
        """
        if self._dispatching:  # what is added is joined anyway
            yield
            return
        self._dispatching = True
        try:
            yield
        finally:
            self._dispatching = False
            self.follow_up()

    async def close(self, text: str, *, within: float) -> None:
        """End the session: gracefully if the peer confirms within `within` seconds, otherwise by `abort`."""
        self.session.close(text)
        self.follow_up()
        if self.session.attached:  # without a transport the peer cannot confirm
            await first_completed(self.over.wait(), timeout=within)
        self.abort(text)

    def abort(self, text: str) -> None:
        """End the session immediately; the peer detects this when it tries to resume."""
        self.session.abort(text)
        self.follow_up()

    # Called by a stream:

    def send(self, stream_id: int, data: bytes | memoryview) -> int:
        """Pass bytes to the session; return how many it accepted. `StreamWritable` follows when it accepts more.

        Raises:
            ConnectionLost: the session no longer has this stream.
        """
        taken = self.session.streams.send(stream_id, data)
        self.follow_up()
        return taken

    def send_eof(self, stream_id: int) -> None:
        """End a stream's sending direction; raises the same errors as `send`."""
        self.session.streams.send_eof(stream_id)
        self.follow_up()

    def reset(self, stream_id: int, code: ResetCode, text: str) -> None:
        """End both directions of a stream; the peer receives the code and the text."""
        self.forget(stream_id)
        self.session.streams.reset(stream_id, code, text)
        self.follow_up()

    def forget(self, stream_id: int) -> None:
        """Remove a stream after both directions have ended; its reader can still read the received bytes."""
        self._streams.pop(stream_id, None)
        self._on_streams()

    def consumed(self, stream_id: int, size: int) -> None:
        """Return credit to the peer for bytes that were consumed."""
        # A credit frame is due only after a part of the window was consumed; no event can have followed.
        if self.session.streams.consumed(stream_id, size, self._now()):
            self.send_soon()

    # Events and time:

    def follow_up(self) -> None:
        """Dispatch events, send data and set the timer; required after every call to the session."""
        self._dispatch()
        self.send_soon()
        self._timer.set(self.session.next_deadline())

    def _dispatch(self) -> None:
        """Pass all events to their handlers, in order, including events that these handlers cause."""
        if self._dispatching:  # called by a handler: the loop below is running and will process these events
            return
        self._dispatching = True
        try:
            while found := self.session.events():
                for event in found:
                    self._handle(event)
        finally:
            self._dispatching = False

    def send_soon(self) -> None:
        """Send as much as possible once all events are dispatched; leave the rest to the writing task."""
        if self._dispatching:  # several handlers may add data, and one message for all of it is cheaper
            self._more = True
            return
        if self._idle is not None:
            # The writing task is idle, so sending from here keeps the order and saves a task switch.
            transport, epoch = self._idle
            if self.session.may_send:
                self._fill(transport, epoch)
            if transport.has_room and not self._is_detached(epoch):
                return
            self._idle = None
        self._work.set()

    def _handle(self, event: events.Event) -> None:
        if isinstance(event, (events.DataReceived, events.StreamWritable, events.EofReceived, events.StreamReset)):
            if stream := self._streams.get(event.stream):  # else it is closed here
                self._pass_on(event, stream)
        elif isinstance(event, events.StreamOpened):
            self._opened(event)
        elif isinstance(event, events.StatusReceived):
            self.peer_status = event.status
            self._on_status(event.status)
        elif isinstance(event, events.RoundTrip):
            self._on_round_trip(event.seconds)
        elif isinstance(event, events.TransportDead):
            if transport := self._transports.get(event.epoch):
                self._deaths[event.epoch] = f"{event.death.value}{f' ({event.text})' if event.text else ''}"
                transport.abort()  # an orderly close would wait for a peer that may not answer
        elif isinstance(event, events.SessionOver):
            self._finish(event)

    def _pass_on(self, event: events.StreamEvent, stream: SessionStream) -> None:
        if isinstance(event, events.DataReceived):
            stream.deliver(event.data)
        elif isinstance(event, events.StreamWritable):
            stream.deliver_room()
        elif isinstance(event, events.EofReceived):
            stream.deliver_eof()
        else:
            self.forget(event.stream)
            stream.break_off(StreamBroken(event.code, event.text))

    def _add(self, stream_id: int) -> SessionStream:
        """Create the object for a stream that the session has just opened."""
        stream = self._streams[stream_id] = SessionStream(self, stream_id)
        self._on_streams()
        return stream

    def _opened(self, event: events.StreamOpened) -> None:
        stream = self._add(event.stream)
        if self._on_open is None:
            self.refuse(stream, ResetCode.NOT_ALLOWED, "streams are not accepted here")
        else:
            self._on_open(stream, event)

    def _finish(self, event: events.SessionOver) -> None:
        orderly = event.reason in {OverReason.CLOSED, OverReason.PEER_CLOSED}
        reason = event.text or event.reason.value
        error = ConnectionLost(f"the tunnel session has ended: {reason}", code=1000 if orderly else 1006, reason=reason)
        streams = list(self._streams.values())
        self._streams.clear()
        for stream in streams:
            stream.break_off(error)
        self._timer.cancel()
        self.over.set()
        self._on_over()

    def _tick(self) -> None:
        self.session.tick(self._now())
        self.follow_up()
