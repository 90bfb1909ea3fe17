"""Sequence numbers: unacknowledged frames of the sender, and acknowledgements of the receiver.

`ReplayBuffer` is the sending side. A frame gets its number when it is sent for the first time and is kept until the
peer acknowledges it. After a resume, the unacknowledged frames are sent again without change.

`Receipts` is the receiving side. An ACK means only that the sender may discard the frames. It does not wait for the
consumer of a stream, unlike WINDOW.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from relay_core.tunnel.frames import HEADER_SIZE, Buffer, pack_header
from relay_core.tunnel.limits import SHARED_ACK_BYTES, Settings
from relay_core.tunnel.outcomes import Breach, ProtocolBreach

__all__ = ["Receipts", "ReplayBuffer", "SentFrame"]


class SentFrame(NamedTuple):
    """A sent sequenced frame; header and payload are separate buffers, so that the payload is not copied."""

    seq: int
    header: bytes
    payload: Buffer

    @property
    def size(self) -> int:
        """Size in bytes, including the header."""
        return HEADER_SIZE + len(self.payload)


class ReplayBuffer:
    """Frames that were sent and not yet acknowledged."""

    def __init__(self) -> None:
        self.size = 0
        """Size of all frames in bytes, including headers."""
        self.last_sent = 0
        """Sequence number of the last frame."""
        self.acked = 0
        """The peer has acknowledged all frames up to this number."""
        self._kept: deque[SentFrame] = deque()
        self._to_resend: deque[SentFrame] = deque()
        """The frames of `_kept` that have not been sent on the current transport."""

    def __repr__(self) -> str:
        return f"<ReplayBuffer {self.acked}..{self.last_sent} {self.size} bytes>"

    def add(self, kind: int, stream: int, payload: Buffer) -> SentFrame:
        """Assign the next sequence number to a frame, and keep the frame until it is acknowledged."""
        self.last_sent += 1
        # Packed only once, because a frame resent after a resume must be identical byte for byte.
        frame = SentFrame(self.last_sent, pack_header(kind, stream, len(payload), self.last_sent), payload)
        self._kept.append(frame)
        self.size += HEADER_SIZE + len(payload)
        return frame

    def ack(self, seq: int) -> None:
        """Discard the frames up to `seq`; an old acknowledgement has no effect.

        Raises:
            ProtocolBreach: `seq` was never sent.
        """
        # Such a peer counts frames differently, so none of its acknowledgements can be trusted.
        if seq > self.last_sent:
            raise ProtocolBreach(Breach.ACK, f"{seq}, sent {self.last_sent}")
        kept = self._kept
        while self.acked < seq:
            self.acked += 1
            self.size -= HEADER_SIZE + len(kept.popleft().payload)
        # An ACK can arrive while the frames are being sent again: the peer had received them before the resume.
        while self._to_resend and self._to_resend[0].seq <= seq:
            self._to_resend.popleft()

    def rewind(self) -> None:
        """Mark all unacknowledged frames for sending again, on a new transport."""
        # A copy of references: the frames stay in `_kept` until they are acknowledged.
        self._to_resend = self._kept.copy()

    @property
    def has_resend(self) -> bool:
        """Whether a frame has to be sent again."""
        return bool(self._to_resend)

    def next_resend(self) -> SentFrame | None:
        """Return the next frame to send again, or None."""
        return self._to_resend.popleft() if self._to_resend else None


class Receipts:
    """Received sequence numbers, and the time to acknowledge them.

    Args:
        settings: `ack_bytes`, `ack_frames` and `ack_delay`.
    """

    def __init__(self, settings: Settings) -> None:
        self.received = 0
        """Sequence number of the last frame; all frames before it were received too."""
        self.due = False
        """True if an ACK should be sent now; otherwise it may be sent together with other frames."""
        self.deadline: float | None = None
        """Time at which an ACK becomes due."""
        self._settings = settings
        self._bytes = 0
        self._acked = 0

    def __repr__(self) -> str:
        return f"<Receipts {self._acked}..{self.received} {self._bytes} bytes>"

    @property
    def pending(self) -> bool:
        """True if an ACK would be useful."""
        return self.due or self.received > self._acked

    def is_next(self, seq: int) -> bool:
        """Return True if `seq` is the next frame, False if it is a duplicate.

        Raises:
            ProtocolBreach: Frames in between are missing.
        """
        # Transports are reliable and ordered, so a gap is an error of the peer, not a loss.
        if seq > self.received + 1:
            raise ProtocolBreach(Breach.SEQUENCE, f"{seq} after {self.received}")
        return seq > self.received

    def accept(self, size: int, now: float, *, shared: bool = False) -> None:
        """Record the next frame.

        Args:
            size: Size of the frame in bytes.
            now: Monotonic seconds.
            shared: True if several streams are open, which lowers the peer's limit on unacknowledged data.
        """
        self.received += 1
        self._bytes += size
        settings = self._settings
        # Acknowledge at half of the peer's limit, so that the ACK arrives while the peer may still send.
        ack_bytes = settings.ack_bytes
        if shared:
            ack_bytes = min(ack_bytes, SHARED_ACK_BYTES, settings.shared_in_flight // 2)
        if self._bytes >= ack_bytes or self.received - self._acked >= settings.ack_frames:
            self.make_due()
        elif self.deadline is None and not self.due:
            self.deadline = now + settings.ack_delay

    def make_due(self) -> None:
        """Make an ACK due now."""
        self.due = True
        self.deadline = None

    def tick(self, now: float) -> None:
        """Make an ACK due if its deadline has passed."""
        if self.deadline is not None and now >= self.deadline:
            self.make_due()

    def take(self) -> int:
        """Return the sequence number for an ACK that is sent now."""
        self._acked = self.received
        self._bytes = 0
        self.due = False
        self.deadline = None
        return self.received
