"""The editor's end of a connection to one rank; a session of all ranks acts as the editor of each rank."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from relay_core.net.streams.endpoint import LocalHandler
from relay_core.net.tasks import Deferred

__all__ = ["RankLink"]


class RankLink:
    """A `LocalSide` without a socket: `ports.waiting_connection` carries it to the rank like an editor's connection.

    Args:
        on_data: Called with bytes from the rank's debugger, in a later iteration of the event loop than the one in
            which they arrive: the session may answer immediately, and layers must not be called while they return
            outputs.
        on_end: Called when the debugger has closed its direction, after all of its bytes.
    """

    def __init__(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self.ended = asyncio.Event()
        self._on_data = on_data
        self._on_end = on_end
        self._handler: LocalHandler | None = None
        self._unsent: deque[bytes] = deque()
        """Bytes from the session that have not been sent yet."""
        self._received: list[bytes] = []
        self._deliver = Deferred(self.deliver)
        self._has_end = False
        self._is_held = self._is_slow = False
        """Whether the stream accepts no more bytes at the moment, and whether the editor is reading too slowly."""
        self._is_closed = False

    def __repr__(self) -> str:
        state = "gone" if self._is_closed else "ended" if self.ended.is_set() else "open"
        return f"<RankLink {state} unsent={len(self._unsent)}>"

    # Called by the session:

    def send(self, data: bytes) -> None:
        """Send bytes to the rank's debugger."""
        if not self.ended.is_set():
            self._unsent.append(data)
            self._push()

    def end(self) -> None:
        """Close this direction after the bytes sent so far."""
        if not self.ended.is_set():
            self.ended.set()
            if self._handler is not None:
                self._handler.local_eof()

    def pause(self) -> None:
        """Make the debugger wait until `resume` is called, because the editor is reading too slowly."""
        self._is_slow = True
        if self._handler is not None:
            self._handler.local_writing_paused()

    def resume(self) -> None:
        """Let the debugger send again."""
        self._is_slow = False
        if self._handler is not None:
            self._handler.local_writing_resumed()

    # As a LocalSide:

    @property
    def is_gone(self) -> bool:
        """Whether the connection is closed."""
        return self._is_closed

    def deliver_to(self, handler: LocalHandler) -> None:
        """Pass the unsent bytes to the handler, and from now on all events as they occur."""
        self._handler = handler
        self._is_held = False
        if self._is_slow:
            handler.local_writing_paused()
        self._push()
        if self.ended.is_set() and self._handler is handler:
            handler.local_eof()

    def detach(self) -> None:
        """Remove the handler, and keep further bytes for the next one."""
        self._handler, self._is_held = None, False

    def write(self, data: bytes) -> None:
        """Pass bytes to the session, in a later iteration of the event loop."""
        if not self._is_closed:
            self._received.append(data)
            self._deliver.request()

    def write_eof(self) -> None:
        """Pass EOF to the session, after the bytes."""
        self._has_end = True
        self._deliver.request()

    def pause_reading(self) -> None:
        """Hold back what the session sends."""
        self._is_held = True

    def resume_reading(self) -> None:
        """Pass on what was held back."""
        self._is_held = False
        self._push()

    async def close(self) -> None:
        """Close the connection."""
        self.abort()

    def abort(self) -> None:
        """Close the connection; the session still receives what has arrived."""
        self._is_closed = True
        self.ended.set()

    def _push(self) -> None:
        while self._unsent and self._handler is not None and not self._is_held:
            self._handler.local_data(self._unsent.popleft())

    def deliver(self) -> None:
        """Pass what has arrived to the session now."""
        received, self._received = self._received, []
        if received:
            self._on_data(b"".join(received))
        if self._has_end:
            self._has_end = False
            self._on_end()
