"""State of one stream: its send queue, and the credit of both directions.

    sending:    OPEN --send_eof()--> ENDING --FIN framed--> ENDED        receiving:  OPEN --FIN--> ENDED
                                     (queue drains)

The directions end independently. A stream is finished when both have ended; a RST from either side closes it
immediately. Both sides count credit: `credit` is the number of bytes that the peer allows this side to send, and
`allowance` is the number of bytes that this side allows the peer to send. Credit is returned to the peer when the
consumer has written the bytes to its socket (`consumed`), half of the initial window at a time. If it were returned
earlier, buffers would be unbounded; if later, the stream would stall (both happened in rust-yamux). The window grows if
it is too small for the path's bandwidth-delay product.
"""

from __future__ import annotations

from collections import deque

from relay_core.tunnel.frames import Buffer
from relay_core.tunnel.limits import KIB

SMALL = KIB
"""Data below this size is appended to the last piece, which takes less memory and time than a separate piece."""
PIECE = 16 * KIB
"""Size at which a piece is full; small data then starts a new piece."""
GROWTH = 4
"""Factor by which a window grows. A long path reaches its window in three round trips; with a factor of 16, the first
two of eight streams would use up the memory by which all windows together may grow."""
GROWTH_TIME = 1.5
"""Number of round trips within which half of a window must be consumed for the window to grow. A sender that waits for
credit sends one burst for each round trip, so half of a window that has just grown is consumed slightly more than one
round trip after the last decision. With 1.0, it depended on chance whether a long path reached its window one round
trip later."""
GROWTH_LEAST = 0.005
"""The same in seconds, for paths without latency: there, a window lasts until each program of the path has had its turn
on a processor."""


class SendQueue:
    """Bytes of a stream that wait to be sent; large pieces are not copied."""

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
        credit: Bytes that the peer allows this side to send before it returns credit.
        queue_limit: Maximum size of the send queue in bytes.
    """

    def __init__(self, stream_id: int, *, incoming: bool, window: int, credit: int, queue_limit: int) -> None:
        self.id = stream_id
        self.incoming = incoming
        self.accepted = False
        self.credit = credit
        self.queue = SendQueue()
        self.blocked = False
        """True if a writer waits for `StreamWritable`."""
        self.scheduled = False
        """True if the stream is in one of the scheduler's queues."""
        self.turn = 0
        """Bytes sent in the current turn of the scheduler."""
        self.messages = 0
        """Number of small frames sent in a row."""
        self.eof_queued = False
        self.eof_sent = False
        self.allowance = window
        self.unread = 0
        """Bytes received and not yet consumed."""
        self.unreturned = 0
        """Bytes consumed for which credit has not been returned to the peer."""
        self.eof_received = False
        self.measured_at: float | None = None
        """Time of the first data; later, the time of the last decision on whether the window must grow."""
        self.window_growth = 0
        """Bytes by which the window has grown."""
        self._measured = 0
        """Credit returned since `measured_at`."""
        self._window = window
        self._return_size = window / 2
        self._queue_limit = queue_limit

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
        # The queue limit applies in addition to the credit, because a window may be larger than the memory that one
        # queue may use.
        taken = min(len(data), self.credit, self._queue_limit - self.queue.size)
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

    def unblock(self) -> bool:
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

    def consume(self, size: int) -> int:
        """Account for consumed bytes, and return the credit to send to the peer now (often 0)."""
        if not 0 <= size <= self.unread:
            raise ValueError(f"{size} bytes consumed, {self.unread} unread")
        self.unread -= size
        self.unreturned += size
        # After the peer's FIN it needs no credit. Before that, returning half a window at a time keeps WINDOW frames
        # infrequent. This amount does not grow with the window: on a long path the peer would wait for the credit.
        if self.eof_received or self.unreturned < self._return_size:
            return 0
        credit, self.unreturned = self.unreturned, 0
        self.allowance += credit
        return credit

    def window_too_small(self, credit: int, round_trip: float, now: float) -> bool:
        """Return True if half a window was consumed so fast that it is too small; called when credit is returned.

        Args:
            credit: The credit that is returned.
            round_trip: Round trip of the path in seconds; 0 if unknown.
            now: Monotonic seconds.
        """
        self._measured += credit
        if self._measured * 2 < self._window:
            return False
        # The peer then runs out of credit before this credit arrives, or soon would.
        last, self.measured_at, self._measured = self.measured_at, now, 0
        return last is not None and now - last < max(GROWTH_TIME * round_trip, GROWTH_LEAST)

    def grow_window(self, most: int, left: int) -> int:
        """Multiply the window by `GROWTH`, and return the additional credit for the peer.

        Args:
            most: Maximum size of the window.
            left: Maximum growth.
        """
        # Multiplied instead of increased by a constant, so that a long path reaches its window after a few round trips.
        extra = max(0, min((GROWTH - 1) * self._window, most - self._window, left))
        self._window += extra
        self.allowance += extra
        self.window_growth += extra
        return extra
