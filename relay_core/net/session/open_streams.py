"""The open streams of a session: its events find their stream here, and the calls of a stream its session."""

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
    """Follows up what was done to a session."""

    def follow_up(self) -> None:
        """Hand out events, send what can leave, and arm the timer."""

    def send_soon(self) -> None:
        """Send what can leave."""


class OpenStreams:
    """See the module's docstring; the owner of its streams.

    Args:
        session: Theirs.
        runner: Called after each call of the session.
        now: The clock of the session.
        on_change: Called when their number has changed.
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

    # What the driver does:

    def add(self, stream_id: int) -> SessionStream:
        """Return the stream of a number that the session has just given to one."""
        stream = self._streams[stream_id] = SessionStream(self, stream_id)
        self._on_change()
        return stream

    def handle(self, event: DataReceived | EofReceived | StreamReset | StreamWritable) -> None:
        """Pass an event on to its stream; one that is gone needs it no more."""
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
        """The session is over, and so are its streams."""
        streams = list(self._streams.values())
        self._streams.clear()
        for stream in streams:
            stream.break_off(error)

    # What a stream does:

    def send(self, stream_id: int, data: bytes | memoryview) -> int:
        """Hand bytes to the session and return how many it took; `StreamWritable` follows when it takes more.

        Raises:
            ConnectionLost: the session has no such stream any more.
        """
        taken = self._session.streams.send(stream_id, data)
        self._runner.follow_up()
        return taken

    def send_eof(self, stream_id: int) -> None:
        """End a stream's sending direction; raises as `send`."""
        self._session.streams.send_eof(stream_id)
        self._runner.follow_up()

    def reset(self, stream_id: int, code: ResetCode, text: str) -> None:
        """Reset a stream."""
        self.forget(stream_id)
        self._session.streams.reset(stream_id, code, text)
        self._runner.follow_up()

    def forget(self, stream_id: int) -> None:
        """Both directions of a stream have ended; what was received is with its reader."""
        self._streams.pop(stream_id, None)
        self._on_change()

    def consumed(self, stream_id: int, size: int) -> None:
        """Give back credit."""
        if self._session.streams.consumed(stream_id, size, self._now()):
            self._runner.send_soon()
