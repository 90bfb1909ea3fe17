"""Events of a session, which `Session.events()` returns in the order in which they happened."""

from __future__ import annotations

from dataclasses import dataclass

from relay_core.tunnel.frames import JsonObject, Target
from relay_core.tunnel.outcomes import Death, OverReason, Refusal, ResetCode


@dataclass(frozen=True)
class StreamOpened:
    """The peer opened a stream; respond with `Streams.accept` or `Streams.reset`. Data may follow immediately."""

    stream: int
    target: Target
    """Logical port or name; the owner decides whether the peer may connect to it."""
    metadata: JsonObject
    """The peer's information about the connection."""


@dataclass(frozen=True)
class DataReceived:
    """Bytes of a stream; call `Streams.consumed` when they have been written to the socket, not when queued."""

    stream: int
    data: bytes


@dataclass(frozen=True)
class EofReceived:
    """The peer ended its direction of a stream; this side's direction stays open."""

    stream: int


@dataclass(frozen=True)
class StreamReset:
    """A stream was closed in both directions without a regular end."""

    stream: int
    code: ResetCode
    text: str
    """The peer's reason, or ""."""


@dataclass(frozen=True)
class StreamWritable:
    """A stream accepts data again, after `Streams.send` had accepted only a part."""

    stream: int


@dataclass(frozen=True)
class StatusReceived:
    """The peer's current status, which replaces the previous one; intermediate ones may have been skipped."""

    status: JsonObject


@dataclass(frozen=True)
class TransportDead:
    """The session no longer uses a transport, which must be closed. The session waits for the next one."""

    epoch: int
    death: Death
    text: str


@dataclass(frozen=True)
class RoundTrip:
    """A PONG was received."""

    seconds: float
    """Time since the PING was sent."""


@dataclass(frozen=True)
class SessionOver:
    """The session has ended. All streams are closed, and no further event follows."""

    reason: OverReason
    text: str
    """The peer's reason or details, or ""."""
    refusal: Refusal | None = None
    """Set for `OverReason.REFUSED`."""


StreamEvent = DataReceived | EofReceived | StreamReset | StreamWritable
"""What happens to an open stream."""
Event = StreamOpened | StreamEvent | StatusReceived | TransportDead | RoundTrip | SessionOver
