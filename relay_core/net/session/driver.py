"""Runs a session's state machine over whatever transport it has, and hands its streams to those who use them.

Everything here runs in one event loop and never waits between a call of the session and the handling of its events,
so the session sees a single thread. What should leave next is asked of the session only when the socket can take it, so
that urgent frames overtake bulk. While it can, that happens in the call that gave the session something to send; a task
takes over where waiting is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Mapping

from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConnectionLost, RelayDebugError
from relay_core.net.memory import keep_freed_memory
from relay_core.net.session.open_streams import OpenStreams
from relay_core.net.session.stream import SessionStream
from relay_core.net.session.transport import Transport
from relay_core.net.tasks import run_together
from relay_core.tunnel.events import (
    DataReceived,
    EofReceived,
    Event,
    RoundTrip,
    SessionOver,
    StatusReceived,
    StreamOpened,
    StreamReset,
    StreamWritable,
    TransportDead,
)
from relay_core.tunnel.outcomes import ResetCode
from relay_core.tunnel.payloads import Target
from relay_core.tunnel.session import Session

__all__ = ["SessionDriver"]

WRITE_SIZE = 128 * 1024
"""Bytes taken from the session at a time: enough to fill TLS records, little enough to be overtaken soon."""


class SessionDriver:
    """Drives one session.

    Args:
        session: Attached to its first transport.
        on_open: Called with each stream that the peer opens and the event that says what for; must accept or refuse.
        on_status: Called with each status of the peer.
        on_round_trip: Called with each measured round trip, in seconds.
        on_streams: Called when the number of streams has changed.
        on_over: Called when the session has ended for good.
    """

    def __init__(
        self,
        session: Session,
        *,
        on_open: Callable[[SessionStream, StreamOpened], None] | None = None,
        on_status: Callable[[Mapping[str, object]], None] = lambda _status: None,
        on_round_trip: Callable[[float], None] = lambda _seconds: None,
        on_streams: Callable[[], None] = lambda: None,
        on_over: Callable[[], None] = lambda: None,
    ) -> None:
        self.session = session
        keep_freed_memory()
        self.heard_at = asyncio.get_running_loop().time()
        """When the peer was last heard, in the loop's time."""
        self.over = asyncio.Event()
        """Set when the session has ended for good; `session.over` says why."""
        self._on_open = on_open
        self._on_status = on_status
        self._on_round_trip = on_round_trip
        self._on_over = on_over
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._streams = OpenStreams(session, self, now=self._now, on_change=on_streams)
        self._work = asyncio.Event()
        """Set when a writing task should look again."""
        self._idle: tuple[Transport, int] | None = None
        """The transport whose writing task has nothing to do, and its epoch."""
        self._dispatching = False
        self._more = False
        """A handler of events has given the session more to send."""
        self._transports: dict[int, Transport] = {}
        self._deaths: dict[int, str] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._arm()

    def __repr__(self) -> str:
        return f"<SessionDriver {self.session!r}>"

    @property
    def streams(self) -> int:
        """Number of streams in use."""
        return len(self._streams)

    # Transports:

    async def run_transport(self, transport: Transport, epoch: int, first: bytes = b"", reply: bytes = b"") -> str:
        """Carry the session over one transport until that ends; returns why, in words.

        Args:
            transport: Its handshake is done; closed at the end.
            epoch: Its number.
            first: What came behind the handshake.
            reply: What must leave before anything else.
        """
        self._transports[epoch] = transport
        try:
            if reply:
                await transport.send([reply])
            self._receive(epoch, first)
            reading = transport.deliver_to(functools.partial(self._receive, epoch))
            await run_together(reading, self._write(transport, epoch))
        except RelayDebugError as error:
            code = getattr(error, "code", 1006)
            reason = self._deaths.pop(epoch, "") or getattr(error, "reason", "") or f"{error.sentence} ({code})"
        else:
            reason = self._deaths.pop(epoch, "") or "the session is over"
        finally:
            self._transports.pop(epoch, None)
            if self._idle == (transport, epoch):
                self._idle = None
            self.session.transport_lost(epoch, self._now())
            self.follow_up()
            if self.session.over:
                await transport.close()
            transport.abort()
        return reason

    async def _write(self, transport: Transport, epoch: int) -> None:
        """Send what the session wants to send; ends when nothing will ever leave on this transport again."""
        while True:
            await transport.drain()
            self._work.clear()
            self._fill(transport, epoch)
            if self._has_left(epoch):
                raise ConnectionLost("the session has left this transport", code=1000)
            if transport.has_room:
                self._idle = (transport, epoch)
                await self._work.wait()

    def _fill(self, transport: Transport, epoch: int) -> None:
        """Send all that can leave now."""
        size = WRITE_SIZE
        while (size >= WRITE_SIZE or self._more) and transport.has_room:
            self._more = False
            buffers = self.session.data_to_send(epoch, self._now(), WRITE_SIZE)
            if buffers:
                transport.write(buffers)
            self._dispatch()
            size = sum(map(len, buffers))

    def _has_left(self, epoch: int) -> bool:
        return epoch in self._deaths or self.session.over is not None

    def _receive(self, epoch: int, data: bytes) -> None:
        self.heard_at = self._now()
        self.session.receive_data(epoch, data, self.heard_at)
        self.follow_up()

    # The owner:

    def open(self, target: Target, metadata: Mapping[str, object] | None = None) -> SessionStream:
        """Open a stream; bytes may be written at once, a refusal breaks it.

        Raises:
            ConnectionLost: the session is over.
            StreamLimitReached: too many are open.
        """
        stream = self._streams.add(self.session.streams.open(target, metadata))
        self.follow_up()
        return stream

    def accept(self, stream: SessionStream) -> None:
        """Accept a stream that the peer opened."""
        self.session.streams.accept(stream.id)
        self.follow_up()

    def refuse(self, stream: SessionStream, code: ResetCode, text: str) -> None:
        """Refuse a stream that the peer opened."""
        self._streams.forget(stream.id)
        self.session.streams.refuse(stream.id, code, text)
        self.follow_up()

    def send_status(self, status: Mapping[str, object]) -> None:
        """Tell the peer the present status."""
        self.session.send_status(status)
        self.follow_up()

    def catch_up(self) -> None:
        """Handle what a handshake did to the session: a refused resume may have ended it."""
        self.follow_up()

    def probe(self, seconds: float) -> None:
        """Ask the peer for a sign of life within `seconds`; otherwise the transport is dead."""
        self.session.probe(self._now(), seconds)
        self.follow_up()

    async def close(self, text: str, *, within: float) -> None:
        """End the session: in order if the peer confirms within so many seconds, else at once."""
        self.session.close(text)
        self.follow_up()
        if self.session.attached:
            with contextlib.suppress(*TIMEOUT_ERRORS):
                async with timeout(within):
                    await self.over.wait()
        self.abort(text)

    def abort(self, text: str) -> None:
        """End the session at once."""
        self.session.abort(text)
        self.follow_up()

    # Events and time:

    def follow_up(self) -> None:
        """Do what every call of the session asks for: hand out events, send, arm the timer."""
        self._dispatch()
        self.send_soon()
        self._arm()

    def _dispatch(self) -> None:
        """Hand out events; one that causes others is handed out before them."""
        if self._dispatching:
            return
        self._dispatching = True
        try:
            while events := self.session.events():
                for event in events:
                    self._handle(event)
        finally:
            self._dispatching = False

    def send_soon(self) -> None:
        """Send now what can leave now, once all events are handed out; leave the rest to the writing task."""
        if self._dispatching:
            self._more = True
            return
        if self._idle is not None:
            transport, epoch = self._idle
            self._fill(transport, epoch)
            if transport.has_room and not self._has_left(epoch):
                return
            self._idle = None
        self._work.set()

    def _handle(self, event: Event) -> None:
        if isinstance(event, (DataReceived, StreamWritable, EofReceived, StreamReset)):
            self._streams.handle(event)
        elif isinstance(event, StreamOpened):
            self._opened(event)
        elif isinstance(event, StatusReceived):
            self._on_status(event.status)
        elif isinstance(event, RoundTrip):
            self._on_round_trip(event.seconds)
        elif isinstance(event, TransportDead):
            if transport := self._transports.get(event.epoch):
                self._deaths[event.epoch] = f"{event.death.value}{f' ({event.text})' if event.text else ''}"
                transport.abort()
        elif isinstance(event, SessionOver):
            self._finish(event)

    def _opened(self, event: StreamOpened) -> None:
        stream = self._streams.add(event.stream)
        if self._on_open is None:
            self.refuse(stream, ResetCode.NOT_ALLOWED, "this side accepts no streams")
        else:
            self._on_open(stream, event)

    def _finish(self, event: SessionOver) -> None:
        error = ConnectionLost(f"the tunnel session has ended: {event.text or event.reason.value}")
        self._streams.break_all(error)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.over.set()
        self._on_over()

    def _arm(self) -> None:
        """Have the session ticked at its next deadline; a timer that is early only looks again."""
        deadline = self.session.next_deadline()
        if deadline is None:
            return
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.session.tick(self._now())
        self.follow_up()
