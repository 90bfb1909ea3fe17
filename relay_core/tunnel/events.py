"""What happens in a session, for its owner; `Session.events()` hands them out in the order in which they happened."""

from __future__ import annotations

from dataclasses import dataclass

from relay_core.tunnel.outcomes import Death, OverReason, Refusal, ResetCode
from relay_core.tunnel.payloads import JsonObject, Target

__all__ = [
    "DataReceived",
    "EofReceived",
    "Event",
    "RoundTrip",
    "SessionOver",
    "StatusReceived",
    "StreamOpened",
    "StreamReset",
    "StreamWritable",
    "TransportDead",
]


@dataclass(frozen=True)
class StreamOpened:
    """The peer opened a stream; answer with `Streams.accept` or `Streams.refuse`. Data may follow at once."""

    stream: int
    target: Target
    """Logical port or name, to be checked against what may be reached."""
    metadata: JsonObject
    """Who opens it and why, from the peer."""


@dataclass(frozen=True)
class DataReceived:
    """Bytes of a stream; call `Streams.consumed` when they have been passed on, not when they have been queued."""

    stream: int
    data: bytes


@dataclass(frozen=True)
class EofReceived:
    """The peer ended its direction of a stream; ours stays open."""

    stream: int


@dataclass(frozen=True)
class StreamReset:
    """A stream is gone, in both directions and at once."""

    stream: int
    code: ResetCode
    text: str
    """A sentence from the peer, or ""."""


@dataclass(frozen=True)
class StreamWritable:
    """A stream for which `Streams.send` took less than it was given takes bytes again."""

    stream: int


@dataclass(frozen=True)
class StatusReceived:
    """The peer's newest status; it replaces the one before, and some in between may have been skipped."""

    status: JsonObject


@dataclass(frozen=True)
class TransportDead:
    """The session has given up a transport: close it. The session itself waits for the next one."""

    epoch: int
    death: Death
    text: str


@dataclass(frozen=True)
class RoundTrip:
    """A PONG came back."""

    seconds: float


@dataclass(frozen=True)
class SessionOver:
    """The session has ended for good; every stream is gone, and no further event follows."""

    reason: OverReason
    text: str
    """The peer's sentence or details, or ""."""
    refusal: Refusal | None = None
    """Set with `OverReason.REFUSED`."""


Event = (
    StreamOpened
    | DataReceived
    | EofReceived
    | StreamReset
    | StreamWritable
    | StatusReceived
    | TransportDead
    | RoundTrip
    | SessionOver
)
