"""Enums of the reasons why attempts, streams, transports and sessions end.

| what ends                 | on the wire        | reason         |
|---------------------------|--------------------|----------------|
| an attempt to attach      | REFUSED            | `Refusal`      |
| one stream                | RST                | `ResetCode`    |
| one transport             | it is closed       | `Death`, and `Breach` if the peer violated the protocol |
| the session               | GOAWAY, or nothing | `OverReason`   |
"""

from __future__ import annotations

import enum

from relay_core.errors import ProtocolError, RelayDebugError
from relay_core.value_parsers import TolerantEnum


class Role(enum.Enum):
    """One of the two ends of a session; proofs and certificates contain the value."""

    CLIENT = "client"
    """Opens the transports (as a sender of the relay); its streams have odd numbers."""
    AGENT = "agent"
    """Accepts the transports (as a listener of the relay); its streams have even numbers."""

    @property
    def other(self) -> Role:
        """The role of the peer."""
        return Role.AGENT if self is Role.CLIENT else Role.CLIENT


class Refusal(TolerantEnum, enum.IntEnum):
    """Reason why a HELLO or RESUME was refused."""

    UNSPECIFIED = 0
    """A reason that this version does not know."""
    KEY_MISMATCH = 1
    """Only one side has a tunnel key."""
    VERSION = 2
    """The two sides have no protocol version in common."""
    UNKNOWN_SESSION = 3
    """The agent was restarted, or the session expired."""
    SEQ_GAP = 4
    """A side acknowledged frames that were never sent, or no longer has the frames that it acknowledged."""
    BAD_PROOF = 5
    """The proof shows that the peer does not know the session's secret."""
    STALE_EPOCH = 6
    """The epoch was already used: this is a replay, or a newer attempt has overtaken this one."""
    BUSY = 7
    """The agent has reached its limit on sessions."""
    MALFORMED = 8
    """The received bytes are not a first frame of this protocol."""

    @property
    def final(self) -> bool:
        """True if another attempt cannot succeed."""
        return self not in {Refusal.UNSPECIFIED, Refusal.STALE_EPOCH, Refusal.BUSY, Refusal.MALFORMED}


class ResetCode(TolerantEnum, enum.IntEnum):
    """Reason why a stream was reset or its OPEN refused."""

    UNSPECIFIED = 0
    """A reason that this version does not know."""
    CANCELLED = 1
    """The local connection failed."""
    NOT_ALLOWED = 2
    """The peer does not allow connections to the target."""
    UNKNOWN_TARGET = 3
    UNREACHABLE = 4
    """The target exists, but a connection to it failed."""
    HELD = 5
    """Another client is attached to the target."""
    GONE = 6
    """The target's process has ended."""
    LIMIT = 7
    """Too many streams are open, or they were opened too fast."""
    FLOW_CONTROL = 8
    """The peer sent more than its credit."""
    PROTOCOL = 9
    """The peer sent a frame that is invalid in this stream's state."""
    CLOSED = 10
    """A user or program has ended the connection on purpose."""


class Breach(enum.Enum):
    """Protocol violations of the peer. Each ends the transport; a resume can continue the session."""

    FRAME_TOO_LARGE = "frame larger than the limit"
    SEQUENCE = "sequence number skipped"
    ACK = "acknowledgement of a frame that was never sent"
    UNKNOWN_FRAME = "unknown frame type"
    UNKNOWN_STREAM = "frame for a stream that was never opened"
    STREAM_ID = "stream number out of order"
    MALFORMED = "malformed payload"
    FLOOD = "too many unacknowledged responses"


class Death(enum.Enum):
    """Reason why a session stopped using a transport."""

    SILENCE = "no data received in time"
    SUPERSEDED = "a newer connection took over"
    BREACH = "the peer violated the protocol"


class OverReason(enum.Enum):
    """Reason why a session ended."""

    CLOSED = "closed by this side, confirmed by the peer"
    PEER_CLOSED = "closed by the peer"
    GRACE_EXPIRED = "no new connection in time"
    REFUSED = "the peer refused to resume the session"
    BREACH = "the peer violated the protocol repeatedly"
    ABORTED = "aborted by this side"


class ProtocolBreach(ProtocolError):
    """The peer violated the tunnel protocol.

    Args:
        breach: Kind of violation.
        detail: The invalid value, as short text.
    """

    def __init__(self, breach: Breach, detail: str = "") -> None:
        super().__init__(
            f"the tunnel's peer violated the protocol: {breach.value}" + (f" ({detail})" if detail else "")
        )
        self.breach = breach


class StreamLimitReached(RelayDebugError):
    """The peer's limit on open streams has been reached, or too many control frames are waiting to be acknowledged."""

    retryable = True
