"""Limits and timers of the tunnel, with their reasons.

`Limits` are announced to the peer in the first frame and limit what this side receives. `Settings` adds values that
concern one side only. Sizes are in bytes, times in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

KIB = 1024
MIB = 1024 * KIB

VERSION = 1
MIN_VERSION = 1
"""The oldest supported version; every first frame contains it and the newest version."""

MAX_CONTROL_PAYLOAD = 32 * KIB
"""Maximum payload of all frames except DATA; the info and status of a typical node (eight ranks of a few hundred bytes
each) fit easily."""
MAX_OPEN_METADATA = 4 * KIB
MAX_TARGET_NAME = 255
"""UTF-8 bytes; the length field has one byte."""
MAX_TEXT = 512
"""UTF-8 bytes of the reason in RST, GOAWAY and REFUSED; longer ones are truncated."""
MAX_U31 = 2**31 - 1
"""Maximum of announced limits and of a stream's credit; the sum of two fits in 32 bits."""
MAX_STREAM_ID = 2**32 - 1

MAX_PENDING_CONTROL = 1024
"""Maximum number of control frames waiting for the peer's acknowledgements; a correct peer causes a few per open
stream."""
OPEN_RATE = 100.0
"""Streams that a peer may open per second after an initial burst of `Limits.max_streams`: enough for a web page through
a forward, but a limit for a program that connects in a loop."""
MAX_REPEATED_BREACHES = 3
"""The session ends after this many transports have been lost to a protocol violation at the same frame."""

MAX_WINDOW_GROWTH = 32 * MIB
"""Maximum total growth of the windows of all streams in a session, in bytes."""
SHARED_RATE = 16 * MIB
"""On a path with latency, `Settings.shared_in_flight` is larger by this many bytes per second of round trip; the sum is
the minimum of the measured limit (`relay_core.tunnel.scheduler`).
"""
SHARED_ACK_BYTES = 64 * KIB
"""While several streams are open, an ACK is sent after this many bytes: half of the value at which a peer of an earlier
version stops sending (its `shared_in_flight`)."""

HANDSHAKE_TIMEOUT = 10.0
"""Time for the first frame of each side; the driver enforces it."""
UNCONFIRMED_GRACE = 30.0
"""Time for which an agent keeps a detached session that the client may not know of, because WELCOME was lost."""
REPLACE_IN_USE_AFTER = 60.0
"""Time without a transport after which a session with open streams may be replaced by a new one at the agent's limit. A
short outage, in which all clients lose their transports, must not end a debug session."""
PROBE_TIMEOUT = 3.0
STALL = 5.0
"""If a deadline is processed this late, this side's event loop was blocked; the peer is not necessarily dead."""


@dataclass(frozen=True)
class Limits:
    """What one side accepts; the peer's sender must respect it."""

    max_payload: int = 128 * KIB
    """Maximum DATA payload: as much as a driver takes from the session at a time, so that other frames do not wait
    longer. Each frame is a write to a local socket; with 64 KiB, the programs needed 4 % more CPU time."""
    window: int = MIB
    """Initial window of a stream: bytes in flight or not yet consumed; 140 Mbit/s at a round trip of 60 ms."""
    max_streams: int = 64
    """Maximum number of streams that the peer may have open."""

    def __post_init__(self) -> None:
        for name in ("max_payload", "window", "max_streams"):
            if not 1 <= getattr(self, name) <= MAX_U31:
                raise ValueError(f"{name} is out of range")


@dataclass(frozen=True)
class Settings:
    """Limits and timers of one side; only `limits` is announced to the peer."""

    limits: Limits = field(default_factory=Limits)
    max_window: int = 16 * MIB
    """Maximum size to which the window of a stream grows: 130 MiB/s at a round trip of 120 ms."""
    replay_bytes: int = 16 * MIB
    """Unacknowledged frames kept for a resume, including headers. At this limit, which holds two frames or more, no
    more stream data is sent."""
    control_reserve: int = 256 * KIB
    """Added to `replay_bytes` for control frames, so that credit and resets are sent while data must wait; at least
    8 KiB, which the largest of them, an OPEN, needs."""
    send_queue: int = 256 * KIB
    """Bytes of one stream waiting to be sent; when the queue is full, the driver stops reading the local socket."""
    quantum: int = 128 * KIB
    """Bytes that one stream may send in a row while another one waits. Each DATA frame is a write to a local socket:
    with 16 KiB, the receiver of eight streams spent half of its CPU time on these writes."""
    shared_in_flight: int = 256 * KIB
    """Minimum of the limit on unacknowledged bytes while several streams are open; the limit itself on a path without
    latency while one of these streams is interactive. Data of one stream that is in flight delays that of every other
    stream."""
    ack_bytes: int = 256 * KIB
    ack_frames: int = 64
    ack_delay: float = 0.1
    """An ACK is sent after this many bytes, frames or seconds, or earlier together with another frame. While several
    streams are open, it is sent after `SHARED_ACK_BYTES`, or half of `shared_in_flight` if that is less."""
    ping_after: float = 10.0
    """Time without received data after which a PING is sent; it also resets the idle time-outs of middleboxes."""
    dead_after: float = 25.0
    """Time without received data after which a transport counts as dead."""
    grace: float = 120.0
    """Time for which a detached session is kept; the owner can change `Session.grace` later."""
    max_sessions: int = 32
    """Maximum number of an agent's sessions, including detached ones; a node serves a few people."""
