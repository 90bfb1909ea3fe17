"""One stream: two directions that open together and end apart.

    sending:    OPEN --send_eof()--> ENDING --FIN framed--> ENDED        receiving:  OPEN --FIN--> ENDED
                                     (queue drains)

A stream is finished when both directions have ended, and gone at once after a RST of either side. Credit is counted
on both sides: `credit` is what the peer lets us take from our writers, `allowance` what we let it send. It goes back to
the peer when the consumer has passed the bytes on (`consumed`), half a window at a time: earlier makes buffers
unbounded, later makes streams stall (rust-yamux's lessons). A window that the path is too long for is widened.
"""

from __future__ import annotations

from collections import deque

from relay_core.tunnel.frames import Buffer
from relay_core.tunnel.limits import KIB

__all__ = ["SendQueue", "Stream"]

SMALL = KIB
"""Below this, an append to the last piece costs less memory and time than a piece of its own."""
PIECE = 16 * KIB
"""Where small appends start a new piece."""


class SendQueue:
    """Bytes that a writer handed over and that no frame carries yet; large pieces are never copied."""

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
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, bytearray) and len(last) < PIECE:
            last += data
        else:
            self._pieces.append(bytearray(data))

    def take(self, limit: int) -> Buffer:
        """Remove and return at most `limit` bytes from the front."""
        pieces = self._pieces
        first = pieces.popleft()
        if len(first) > limit:
            view = memoryview(first)
            pieces.appendleft(view[limit:])
            first = view[:limit]
        elif pieces and len(first) + len(pieces[0]) <= limit:
            first = self._gather(first, limit)
        self.size -= len(first)
        return first

    def clear(self) -> None:
        """Drop everything."""
        self.size = 0
        self._pieces.clear()

    def _gather(self, first: Buffer, limit: int) -> bytes:
        """Join pieces that fit one frame together: a copy is cheaper than a frame."""
        parts, size = [first], len(first)
        while self._pieces and size + len(self._pieces[0]) <= limit:
            parts.append(self._pieces.popleft())
            size += len(parts[-1])
        return b"".join(parts)


class Stream:
    """State of one stream; the session and the scheduler decide what it means.

    Args:
        stream_id: Its number.
        incoming: Whether the peer opened it.
        window: Bytes the peer may send ahead of the consumer.
        credit: Bytes the peer lets us send ahead of its consumer.
        queue_limit: Bytes that may wait to be framed.
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
        "widened",
    )

    def __init__(self, stream_id: int, *, incoming: bool, window: int, credit: int, queue_limit: int) -> None:
        self.id = stream_id
        self.incoming = incoming
        self.accepted = False
        self.credit = credit
        self.queue = SendQueue()
        self.blocked = False
        """A writer waits for `StreamWritable`."""
        self.scheduled = False
        """The scheduler holds it."""
        self.eof_queued = False
        self.eof_sent = False
        self.allowance = window
        self.unread = 0
        """Bytes received and not yet consumed."""
        self.unreturned = 0
        """Bytes consumed whose credit the peer does not have back."""
        self.eof_received = False
        self.returned_at: float | None = None
        """When credit went back last."""
        self.widened = 0
        """Bytes by which the window is wider than at first."""
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
        """Bytes that `write` takes now."""
        return min(self.credit, self._queue_limit - self.queue.size)

    @property
    def wants_turn(self) -> bool:
        """Whether a DATA or FIN frame is waiting; queued bytes always have credit."""
        return self.queue.size > 0 or (self.eof_queued and not self.eof_sent)

    @property
    def finished(self) -> bool:
        """Whether both directions have ended."""
        return self.eof_sent and self.eof_received

    def write(self, data: Buffer) -> int:
        """Queue as much of `data` as credit and queue allow, and return how much that was."""
        taken = min(len(data), self.writable)
        if taken < len(data):
            self.blocked = True
            data = memoryview(data)[:taken]
        if taken:
            self.credit -= taken
            self.queue.append(data)
        return taken

    def end(self) -> None:
        """Nothing more is written; a FIN follows what is queued."""
        self.eof_queued = True
        self.blocked = False

    def unblocked(self) -> bool:
        """Whether a waiting writer can continue; True once for each wait."""
        if not self.blocked or self.credit <= 0 or self.queue.size > self._queue_limit // 2:
            return False
        self.blocked = False
        return True

    def receive(self, size: int) -> bool:
        """Account for received bytes; False if the peer had no credit for them."""
        if size > self.allowance:
            return False
        self.allowance -= size
        self.unread += size
        return True

    def consumed(self, size: int) -> int:
        """Account for consumed bytes, and return the credit to give back now, which is mostly none."""
        if not 0 <= size <= self.unread:
            raise ValueError(f"{size} bytes consumed, {self.unread} unread")
        self.unread -= size
        self.unreturned += size
        if self.eof_received or self.unreturned * 2 < self._window:
            return 0
        credit, self.unreturned = self.unreturned, 0
        self.allowance += credit
        return credit

    def widen(self, most: int, left: int) -> int:
        """Let the peer send twice as much ahead, at most `most` bytes and `left` more; returns the credit for that."""
        extra = max(0, min(self._window, most - self._window, left))
        self._window += extra
        self.allowance += extra
        self.widened += extra
        return extra
