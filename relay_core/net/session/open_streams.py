"""Table of a session's open streams: passes the session's events to them, and their calls to the session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from relay_core.errors import ConnectionLost
from relay_core.net.session.stream import SessionStream, StreamBroken
from relay_core.tunnel.events import DataReceived, EofReceived, StreamReset, StreamWritable
from relay_core.tunnel.outcomes import ResetCode
from relay_core.tunnel.session import Session

__all__ = ["OpenStreams", "SessionRunner"]


class SessionRunner(Protocol):
    """The part of the session driver that `OpenStreams` calls after each call to the session."""

    def follow_up(self) -> None:
        """Dispatch events, send pending data, and set the timer."""

    def send_soon(self) -> None:
        """Send pending data."""


class OpenStreams:
    """The streams of one session by number; a `StreamOwner` for them.

    Args:
        session: The session's state machine.
        runner: Called after each call to the session.
        now: The clock of the session.
        on_change: Called when the number of streams has changed.
    """

    def __init__(
        self, session: Session, runner: SessionRunner, *, now: Callable[[], float], on_change: Callable[[], None]
    ) -> None:
        self._session = session
        self._runner = runner
        self._now = now
        self._on_change = on_change
        self._streams: dict[int, SessionStream] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def __repr__(self) -> str:
        return f"<OpenStreams {sorted(self._streams)}>"

    # Called by the driver:

    def add(self, stream_id: int) -> SessionStream:
        """Create the object for a stream that the session has just opened."""
        stream = self._streams[stream_id] = SessionStream(self, stream_id)
        self._on_change()
        return stream

    def handle(self, event: DataReceived | EofReceived | StreamReset | StreamWritable) -> None:
        """Pass an event on to its stream; ignore events of streams that are closed here."""
        stream = self._streams.get(event.stream)
        if stream is None:
            return
        if isinstance(event, DataReceived):
            stream.deliver(event.data)
        elif isinstance(event, StreamWritable):
            stream.deliver_room()
        elif isinstance(event, EofReceived):
            stream.deliver_eof()
        else:
            self.forget(event.stream)
            stream.break_off(StreamBroken(event.code, event.text))

    def break_all(self, error: ConnectionLost) -> None:
        """Break all streams, because the session is over."""
        streams = list(self._streams.values())
        self._streams.clear()
        for stream in streams:
            stream.break_off(error)

    # Called by a stream:

    def send(self, stream_id: int, data: bytes | memoryview) -> int:
        """Pass bytes to the session; return how many it accepted. `StreamWritable` follows when it accepts more.

        Raises:
            ConnectionLost: the session no longer has this stream.
        """
        taken = self._session.streams.send(stream_id, data)
        self._runner.follow_up()
        return taken

    def send_eof(self, stream_id: int) -> None:
        """End a stream's sending direction; raises the same errors as `send`."""
        self._session.streams.send_eof(stream_id)
        self._runner.follow_up()

    def reset(self, stream_id: int, code: ResetCode, text: str) -> None:
        """Reset a stream."""
        self.forget(stream_id)
        self._session.streams.reset(stream_id, code, text)
        self._runner.follow_up()

    def forget(self, stream_id: int) -> None:
        """Remove a stream after both directions have ended; its reader can still read the received bytes."""
        self._streams.pop(stream_id, None)
        self._on_change()

    def consumed(self, stream_id: int, size: int) -> None:
        """Return credit to the peer for bytes that were consumed."""
        # A credit frame is due only after a part of the window was consumed; no event can have followed.
        if self._session.streams.consumed(stream_id, size, self._now()):
            self._runner.send_soon()
