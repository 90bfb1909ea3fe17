"""Interface of a layer between a local socket and a stream to the peer, sans-IO.

    local program <--- ToLocal, EndLocal, ResetLocal ---+                          +<--- receive_peer* ---
                                                        |  layer (no I/O, no clock) |                       peer
    local program ---- receive_local* ----------------->+                          +---- ToPeer, EndPeer -->

A layer is called with an event and returns outputs, in order. It may hold back bytes, add bytes in either direction, or
delay an EOF; it never blocks. Time is an argument: `now` is in seconds of one monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Abort", "EndLocal", "EndPeer", "Layer", "Output", "ResetLocal", "ToLocal", "ToPeer"]


@dataclass(slots=True)  # not frozen: that would make creation three times as slow, and one is created for each message
class ToLocal:
    """Write bytes to the local program."""

    data: bytes


@dataclass(slots=True)  # likewise
class ToPeer:
    """Send bytes to the peer."""

    data: bytes


@dataclass(frozen=True)
class EndLocal:
    """Send EOF to the local program; the other direction stays open."""


@dataclass(frozen=True)
class EndPeer:
    """Send EOF to the peer; the other direction stays open."""


@dataclass(frozen=True)
class ResetLocal:
    """Reset the connection to the local program, because the stream is lost."""


@dataclass(frozen=True)
class Abort:
    """Reset the connection to the local program, and abort the stream."""

    reason: str
    """The reason, as a sentence for the peer and the log."""


Output = ToLocal | ToPeer | EndLocal | EndPeer | ResetLocal | Abort


class Layer:
    """A layer that passes everything on unchanged; subclasses override some of its methods."""

    is_finished = False
    """True when this layer will pass on everything unchanged from now on; the stack then removes it."""

    def start(self, now: float) -> list[Output]:  # noqa: ARG002 - part of the interface, as below
        """Return outputs for the start of the connection."""
        return []

    def receive_local(self, data: bytes, now: float) -> list[Output]:  # noqa: ARG002
        """Handle bytes of the local program."""
        return [ToPeer(data)]

    def receive_peer(self, data: bytes, now: float) -> list[Output]:  # noqa: ARG002
        """Handle bytes of the peer."""
        return [ToLocal(data)]

    def receive_local_eof(self, now: float) -> list[Output]:  # noqa: ARG002
        """Handle EOF of the local program."""
        return [EndPeer()]

    def receive_peer_eof(self, now: float) -> list[Output]:  # noqa: ARG002
        """Handle EOF of the peer."""
        return [EndLocal()]

    def receive_peer_lost(self, now: float) -> list[Output]:  # noqa: ARG002
        """Handle the loss of the stream; bytes for the peer are dropped from now on."""
        return [ResetLocal()]

    def next_deadline(self) -> float | None:
        """Return when to call `tick`, or None."""
        return None

    def tick(self, now: float) -> list[Output]:  # noqa: ARG002
        """Handle the passage of time."""
        return []
