"""State of one stream: its send queue, and the credit of both directions.

    sending:    OPEN --send_eof()--> ENDING --FIN framed--> ENDED        receiving:  OPEN --FIN--> ENDED
                                     (queue drains)

The directions end independently. A stream is finished when both have ended; a RST from either side closes it
immediately. Both sides count credit: `credit` is the number of bytes that the peer allows us to send, `allowance` the
number that we allow it to send. Credit is returned to the peer when the consumer has written the bytes to its socket
(`consumed`), half a window at a time. If it were returned earlier, buffers would be unbounded; if later, the stream
would stall (both happened in rust-yamux). The window grows if it is too small for the path's bandwidth-delay product.
"""

from __future__ import annotations

from collections import deque

from relay_core.tunnel.frames import Buffer
from relay_core.tunnel.limits import KIB

__all__ = ["SendQueue", "Stream"]

SMALL = KIB
"""Data below this size is appended to the last piece, which takes less memory and time than a separate piece."""
PIECE = 16 * KIB
"""Size of a piece at which small data starts a new one."""


class SendQueue:
    """Bytes of a stream that wait to be sent; large pieces are not copied."""

    __slots__ = ("_pieces", "size")

    def __init__(self) -> None:
        self.size = 0
        self._pieces: deque[Buffer] = deque()

    def append(self, data: Buffer) -> None:
        """Add bytes at the end."""
        self.size += len(data)
        if len(data) >= SMALL:
            self._pieces.append(data)
            return
        # Callers pass only bytes and memoryviews, so a bytearray is a piece created here, which may be changed.
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, bytearray) and len(last) < PIECE:
            last += data
        else:
            self._pieces.append(bytearray(data))

    def take(self, limit: int) -> Buffer:
        """Remove and return up to `limit` bytes from the front."""
        pieces = self._pieces
        first = pieces.popleft()
        if len(first) > limit:  # a view of the rest: large pieces are sent in several frames without a copy
            view = memoryview(first)
            pieces.appendleft(view[limit:])
            first = view[:limit]
        elif pieces and len(first) + len(pieces[0]) <= limit:
            first = self._gather(first, limit)
        self.size -= len(first)
        return first

    def clear(self) -> None:
        """Remove all bytes."""
        self.size = 0
        self._pieces.clear()

    def _gather(self, first: Buffer, limit: int) -> bytes:
        """Join pieces that fit into one frame; copying them costs less than additional frames."""
        parts, size = [first], len(first)
        while self._pieces and size + len(self._pieces[0]) <= limit:
            parts.append(self._pieces.popleft())
            size += len(parts[-1])
        return b"".join(parts)


class Stream:
    """State of one stream, used by `Streams` and the scheduler.

    Args:
        stream_id: The stream's number.
        incoming: True if the peer opened it.
        window: Initial window: bytes that the peer may send before they are consumed.
        credit: Bytes that the peer allows us to send before it returns credit.
        queue_limit: Maximum size of the send queue in bytes.
    """

    __slots__ = (
        "_queue_limit",
        "_window",
        "accepted",
        "allowance",
        "blocked",
        "credit",
        "eof_queued",
        "eof_received",
        "eof_sent",
        "id",
        "incoming",
        "queue",
        "returned_at",
        "scheduled",
        "unread",
        "unreturned",
        "window_growth",
    )

    def __init__(self, stream_id: int, *, incoming: bool, window: int, credit: int, queue_limit: int) -> None:
        self.id = stream_id
        self.incoming = incoming
        self.accepted = False
        self.credit = credit
        self.queue = SendQueue()
        self.blocked = False
        """True if a writer waits for `StreamWritable`."""
        self.scheduled = False
        """True if the stream is in the scheduler's queue."""
        self.eof_queued = False
        self.eof_sent = False
        self.allowance = window
        self.unread = 0
        """Bytes received and not yet consumed."""
        self.unreturned = 0
        """Bytes consumed for which credit has not been returned to the peer."""
        self.eof_received = False
        self.returned_at: float | None = None
        """Time at which credit was last returned."""
        self.window_growth = 0
        """Bytes by which the window has grown."""
        self._window = window
        self._queue_limit = queue_limit

    def __repr__(self) -> str:
        sending = "ended" if self.eof_sent else "ending" if self.eof_queued else "open"
        receiving = "ended" if self.eof_received else "open"
        return (
            f"<Stream {self.id} sending={sending} receiving={receiving} "
            f"credit={self.credit} queued={self.queue.size} unread={self.unread}>"
        )

    @property
    def writable(self) -> int:
        """Number of bytes that `write` accepts now."""
        # The queue limit applies in addition to the credit, because a window may be larger than the memory that one
        # queue may use.
        return min(self.credit, self._queue_limit - self.queue.size)

    @property
    def ready_to_send(self) -> bool:
        """True if a DATA or FIN frame can be sent."""
        # write() has already deducted the credit for queued bytes.
        return self.queue.size > 0 or (self.eof_queued and not self.eof_sent)

    @property
    def finished(self) -> bool:
        """True if both directions have ended."""
        return self.eof_sent and self.eof_received

    def write(self, data: Buffer) -> int:
        """Queue as much of `data` as credit and queue allow, and return the number of bytes."""
        taken = min(len(data), self.writable)
        if taken < len(data):
            self.blocked = True
            data = memoryview(data)[:taken]
        if taken:
            self.credit -= taken  # here and not when the frame is sent, so that queued bytes are always sendable
            self.queue.append(data)
        return taken

    def end(self) -> None:
        """End the sending direction: FIN follows the queued data."""
        self.eof_queued = True
        # The writer has ended its direction, so no StreamWritable may follow.
        self.blocked = False

    def unblocked(self) -> bool:
        """Return True, once, if a blocked writer can continue."""
        # Only if half of the queue is free; otherwise a writer would wake up for each frame.
        if not self.blocked or self.credit <= 0 or self.queue.size > self._queue_limit // 2:
            return False
        self.blocked = False
        return True

    def receive(self, size: int) -> bool:
        """Account for received bytes; return False if the peer had no credit for them."""
        if size > self.allowance:
            return False
        self.allowance -= size
        self.unread += size
        return True

    def consumed(self, size: int) -> int:
        """Account for consumed bytes, and return the credit to send to the peer now (often 0)."""
        if not 0 <= size <= self.unread:
            raise ValueError(f"{size} bytes consumed, {self.unread} unread")
        self.unread -= size
        self.unreturned += size
        # After the peer's FIN it needs no credit. Before that, returning half a window at a time keeps WINDOW frames
        # infrequent.
        if self.eof_received or self.unreturned * 2 < self._window:
            return 0
        credit, self.unreturned = self.unreturned, 0
        self.allowance += credit
        return credit

    def grow_window(self, most: int, left: int) -> int:
        """Double the window, and return the additional credit for the peer.

        Args:
            most: Maximum size of the window.
            left: Maximum growth.
        """
        # Doubled instead of increased by a constant, so that a long path reaches its window after a few round trips.
        extra = max(0, min(self._window, most - self._window, left))
        self._window += extra
        self.allowance += extra
        self.window_growth += extra
        return extra
