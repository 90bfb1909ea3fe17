"""Every number of the tunnel, with its reason.

`Limits` is what a side announces in its first frame: what it is ready to receive. `Settings` adds what concerns
one side only. Sizes are bytes, times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = [
    "COMPANY_RATE",
    "HANDSHAKE_TIMEOUT",
    "KIB",
    "MAX_CONTROL_PAYLOAD",
    "MAX_OPEN_METADATA",
    "MAX_PENDING_CONTROL",
    "MAX_REPEATED_BREACHES",
    "MAX_SESSIONS",
    "MAX_STREAM_ID",
    "MAX_TARGET_NAME",
    "MAX_TEXT",
    "MAX_U31",
    "MAX_WIDENING",
    "MIN_VERSION",
    "OPEN_RATE",
    "PROBE_TIMEOUT",
    "STALL",
    "UNCONFIRMED_GRACE",
    "VERSION",
    "Limits",
    "Settings",
]

KIB = 1024
MIB = 1024 * KIB

VERSION = 1
MIN_VERSION = 1
"""The oldest version this side still speaks; both travel in every first frame."""

MAX_CONTROL_PAYLOAD = 32 * KIB
"""Payload limit of every frame but DATA; a node's info and status (eight ranks of a few hundred bytes) fit well."""
MAX_OPEN_METADATA = 4 * KIB
MAX_TARGET_NAME = 255
"""UTF-8 bytes; the length travels in one byte."""
MAX_TEXT = 512
"""UTF-8 bytes of the sentence in a RST, GOAWAY or REFUSED; longer ones are cut."""
MIN_CONTROL_RESERVE = 8 * KIB
"""More than the largest sequenced control frame, an OPEN: where that has no room, its data has none either."""
MAX_U31 = 2**31 - 1
"""Bound of announced limits and of a stream's credit, so that no sum leaves 32 bits."""
MAX_STREAM_ID = 2**32 - 1

MAX_SESSIONS = 32
"""Sessions an agent holds, detached ones included: a node serves a few people, not a crowd."""
MAX_PENDING_CONTROL = 1024
"""Control frames that may wait for a peer's acknowledgements; an honest peer causes a few per open stream."""
OPEN_RATE = 100.0
"""Streams a peer may open per second once its first burst (`Limits.max_streams`) is used up: enough for a web page
through a forward, and a limit for a program that dials in a loop."""
MAX_REPEATED_BREACHES = 3
"""Transports lost to a protocol breach without progress between them, before the session is given up."""

MAX_WIDENING = 16 * MIB
"""Bytes by which all streams of a session together may be wider than they were at first."""
COMPANY_RATE = 16 * MIB
"""Bytes per second that streams which are not alone may have under way over the round trip of their path."""

HANDSHAKE_TIMEOUT = 10.0
"""Time for the first frame of each side; the driver enforces it."""
UNCONFIRMED_GRACE = 30.0
"""How long an agent keeps a detached session of which the client may not even know."""
PROBE_TIMEOUT = 3.0
STALL = 5.0
"""A deadline noticed this late says more about our own event loop than about the peer."""


@dataclass(frozen=True)
class Limits:
    """What one side is ready to receive; a sender obeys its peer's."""

    max_payload: int = 64 * KIB
    """Largest DATA payload. Measured through the secure channel, larger frames are not faster; and a frame is what
    everything else may have to wait for."""
    window: int = MIB
    """Bytes of one stream that may be on their way or unread: 140 Mbit/s at a round trip of 60 ms."""
    max_streams: int = 64
    """Streams the peer may have open at a time."""

    def __post_init__(self) -> None:
        for name in ("max_payload", "window", "max_streams"):
            if not 1 <= getattr(self, name) <= MAX_U31:
                raise ValueError(f"{name} is out of range")


@dataclass(frozen=True)
class Settings:
    """How one side behaves; nothing here but `limits` is told to the peer."""

    limits: Limits = field(default_factory=Limits)
    max_window: int = 4 * MIB
    """Where the window of a stream stops growing whose peer waits for credit: 270 Mbit/s at a round trip of 120 ms."""
    replay_bytes: int = 8 * MIB
    """Unacknowledged frames kept for a resume, headers included; beyond that no stream data leaves its queue."""
    control_reserve: int = 256 * KIB
    """On top of `replay_bytes` and for control frames only, so that credit and resets pass when data must wait."""
    send_queue: int = 256 * KIB
    """Bytes of one stream that wait for their turn; when it is full the driver stops reading the local socket."""
    turn: int = 16 * KIB
    """Bytes of one stream in a row while another one waits."""
    in_company: int = 128 * KIB
    """Unacknowledged bytes at which a stream that is not alone waits, on a path without latency: what is under way
    stands before whatever another stream has to say."""
    ack_bytes: int = 256 * KIB
    ack_frames: int = 64
    ack_delay: float = 0.1
    """An acknowledgement leaves after so many bytes, frames or seconds, or earlier with any other frame; with several
    streams after half of `in_company`, or the two sides would wait for each other."""
    ping_after: float = 10.0
    """Silence after which a PING is sent; it also keeps middleboxes from calling the connection idle."""
    dead_after: float = 25.0
    """Silence after which the transport is given up."""
    grace: float = 120.0
    """How long a detached session is kept; the owner changes `Session.grace` while it runs."""

    def __post_init__(self) -> None:
        if self.replay_bytes < 2 * self.limits.max_payload:
            raise ValueError("replay_bytes must hold two frames")
        if self.control_reserve < MIN_CONTROL_RESERVE:
            raise ValueError(f"control_reserve is below {MIN_CONTROL_RESERVE}")
        if min(self.send_queue, self.turn, self.in_company, self.ack_bytes, self.ack_frames) < 1:
            raise ValueError("a buffer of no bytes stops everything")
