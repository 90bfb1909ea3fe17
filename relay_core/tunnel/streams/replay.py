"""Sequence numbers, and what depends on them: what the peer may still need, and what we must acknowledge.

`ReplayBuffer` is the sending side. A frame gets its number when it leaves for the first time and is kept, header and
all, until the peer acknowledges it; after a resume the rest leaves again, byte for byte.

`Receipts` is the receiving side. An ACK means "safe to forget", nothing else: it never waits for a slow consumer.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from relay_core.tunnel.frames import HEADER_SIZE, Buffer, pack_header
from relay_core.tunnel.limits import Settings
from relay_core.tunnel.outcomes import Breach, ProtocolBreach

__all__ = ["Receipts", "ReplayBuffer", "SentFrame"]


class SentFrame(NamedTuple):
    """A sequenced frame as it went out; header and payload stay apart so that neither is copied."""

    seq: int
    header: bytes
    payload: Buffer

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return HEADER_SIZE + len(self.payload)


class ReplayBuffer:
    """Frames sent and not yet acknowledged."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes held, headers included."""
        self.last_sent = 0
        self.acked = 0
        """The peer has every frame up to this one."""
        self._kept: deque[SentFrame] = deque()
        self._again: deque[SentFrame] = deque()
        """The part of `_kept` that has not left on the present transport."""

    def __repr__(self) -> str:
        return f"<ReplayBuffer {self.acked}..{self.last_sent} {self.size} bytes>"

    def add(self, kind: int, stream: int, payload: Buffer) -> SentFrame:
        """Number a frame and keep it."""
        self.last_sent += 1
        frame = SentFrame(self.last_sent, pack_header(kind, stream, len(payload), self.last_sent), payload)
        self._kept.append(frame)
        self.size += HEADER_SIZE + len(payload)
        return frame

    def ack(self, seq: int) -> None:
        """Forget the frames up to `seq`; an old acknowledgement changes nothing.

        Raises:
            ProtocolBreach: `seq` was never sent.
        """
        if seq > self.last_sent:
            raise ProtocolBreach(Breach.ACK, f"{seq}, sent {self.last_sent}")
        kept = self._kept
        while self.acked < seq:
            self.acked += 1
            self.size -= HEADER_SIZE + len(kept.popleft().payload)
        while self._again and self._again[0].seq <= seq:
            self._again.popleft()

    def rewind(self) -> None:
        """Everything not acknowledged has to leave again, on a new transport."""
        self._again = self._kept.copy()

    def next_again(self) -> SentFrame | None:
        """Return the next frame that has to leave again; None once there is none."""
        return self._again.popleft() if self._again else None


class Receipts:
    """What was received in order, and when to acknowledge it.

    Args:
        settings: `ack_bytes`, `ack_frames` and `ack_delay`.
    """

    def __init__(self, settings: Settings) -> None:
        self.received = 0
        """Sequence number of the last frame; every one before it has come too."""
        self.due = False
        """An ACK should leave now; otherwise it may ride along with other frames."""
        self.deadline: float | None = None
        """When an ACK becomes due."""
        self._settings = settings
        self._bytes = 0
        self._acked = 0

    def __repr__(self) -> str:
        return f"<Receipts {self._acked}..{self.received} {self._bytes} bytes>"

    @property
    def pending(self) -> bool:
        """Whether an ACK has something to say."""
        return self.due or self.received > self._acked

    def is_next(self, seq: int) -> bool:
        """Whether `seq` is the next frame; False for one that came before, on an earlier transport.

        Raises:
            ProtocolBreach: frames are missing in between.
        """
        if seq > self.received + 1:
            raise ProtocolBreach(Breach.SEQUENCE, f"{seq} after {self.received}")
        return seq > self.received

    def accept(self, size: int, now: float, *, in_company: bool = False) -> None:
        """The next frame, of `size` bytes, is ours now; `in_company` if the peer sends less ahead for that reason."""
        self.received += 1
        self._bytes += size
        settings = self._settings
        ack_bytes = min(settings.ack_bytes, settings.in_company // 2) if in_company else settings.ack_bytes
        if self._bytes >= ack_bytes or self.received - self._acked >= settings.ack_frames:
            self.hurry()
        elif self.deadline is None and not self.due:
            self.deadline = now + settings.ack_delay

    def hurry(self) -> None:
        """Make an ACK due at once."""
        self.due = True
        self.deadline = None

    def tick(self, now: float) -> None:
        """Make an ACK due if its time has come."""
        if self.deadline is not None and now >= self.deadline:
            self.hurry()

    def take(self) -> int:
        """Return the number for an ACK that leaves now."""
        self._acked = self.received
        self._bytes = 0
        self.due = False
        self.deadline = None
        return self.received
