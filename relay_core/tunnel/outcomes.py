"""Why the tunnel says no or ends: every reason is a member of an enum, so that nobody has to read sentences.

| what ends                 | told by            | reason         |
|---------------------------|--------------------|----------------|
| an attempt to attach      | REFUSED            | `Refusal`      |
| one stream                | RST                | `ResetCode`    |
| one transport             | closing it         | `Death`, and `Breach` if the peer broke the protocol |
| the session               | GOAWAY, or nothing | `OverReason`   |
"""

from __future__ import annotations

import enum

from relay_core.errors import ProtocolError, RelayDebugError

__all__ = ["Breach", "Death", "OverReason", "ProtocolBreach", "Refusal", "ResetCode", "Role", "StreamLimitReached"]


class Role(enum.Enum):
    """Which end of the session this is; values go into proofs and certificates."""

    CLIENT = "client"
    """Dials the transports (the relay's sender); its streams have odd numbers."""
    AGENT = "agent"
    """Accepts them (the relay's listener); its streams have even numbers."""

    @property
    def other(self) -> Role:
        """The role of the peer."""
        return Role.AGENT if self is Role.CLIENT else Role.CLIENT


class Refusal(enum.IntEnum):
    """Why a HELLO or RESUME was not granted."""

    UNSPECIFIED = 0
    """A reason that this version does not know."""
    KEY_MISMATCH = 1
    """One side has a tunnel key and the other has none."""
    VERSION = 2
    """No protocol version is spoken by both."""
    UNKNOWN_SESSION = 3
    """The agent was restarted, or the session expired."""
    SEQ_GAP = 4
    """A side claims frames that were never sent, or lost ones that it had confirmed."""
    BAD_PROOF = 5
    """The caller does not know the session's secret."""
    STALE_EPOCH = 6
    """A newer transport has been seen already: a replay, or an attempt overtaken by the next."""
    BUSY = 7
    """The agent holds as many sessions as it may."""
    MALFORMED = 8
    """The first bytes are no first frame of this protocol."""

    @property
    def final(self) -> bool:
        """Whether asking again cannot help."""
        return self not in {Refusal.UNSPECIFIED, Refusal.STALE_EPOCH, Refusal.BUSY, Refusal.MALFORMED}

    @classmethod
    def _missing_(cls, _value: object) -> Refusal:
        return cls.UNSPECIFIED


class ResetCode(enum.IntEnum):
    """Why a stream was reset or its OPEN refused."""

    UNSPECIFIED = 0
    """A reason that this version does not know."""
    CANCELLED = 1
    """The local connection broke."""
    NOT_ALLOWED = 2
    """The target is not on the other side's list."""
    UNKNOWN_TARGET = 3
    UNREACHABLE = 4
    """The target exists and does not answer."""
    HELD = 5
    """Somebody else is connected to the target."""
    GONE = 6
    """The target's process has ended."""
    LIMIT = 7
    """Too many streams, or opened too fast."""
    FLOW_CONTROL = 8
    """The peer sent more than its credit."""
    PROTOCOL = 9
    """The peer sent what this stream's state does not allow."""

    @classmethod
    def _missing_(cls, _value: object) -> ResetCode:
        return cls.UNSPECIFIED


class Breach(enum.Enum):
    """What a peer did that the protocol does not allow; it costs the transport, and resume decides what then."""

    FRAME_TOO_LARGE = "frame above the limit"
    SEQUENCE = "sequence number skipped"
    ACK = "acknowledgement of a frame that was never sent"
    UNKNOWN_FRAME = "unknown frame type"
    UNKNOWN_STREAM = "frame for a stream that was never opened"
    STREAM_ID = "stream number out of order"
    MALFORMED = "malformed payload"
    FLOOD = "more requests than acknowledgements"


class Death(enum.Enum):
    """Why the session gave up a transport."""

    SILENCE = "nothing was heard in time"
    SUPERSEDED = "a newer transport took over"
    BREACH = "the peer broke the protocol"


class OverReason(enum.Enum):
    """Why a session ended for good."""

    CLOSED = "closed by this side, confirmed by the other"
    PEER_CLOSED = "closed by the other side"
    GRACE_EXPIRED = "no transport came back in time"
    REFUSED = "the other side refused to resume"
    BREACH = "the peer broke the protocol again and again"
    ABORTED = "given up by this side"


class ProtocolBreach(ProtocolError):
    """The peer broke the tunnel protocol.

    Args:
        breach: What it did.
        detail: The offending value, in a few words.
    """

    def __init__(self, breach: Breach, detail: str = "") -> None:
        super().__init__(f"the tunnel's peer broke the protocol: {breach.value}" + (f" ({detail})" if detail else ""))
        self.breach = breach


class StreamLimitReached(RelayDebugError):
    """As many streams are open as the peer allows, or its answers are overdue."""

    retryable = True
