"""The interface of a layer between a local socket and a stream to the peer.

    local program <--- ToLocal, EndLocal, ResetLocal ---+                          +<--- receive_peer* ---
                                                        |  layer (no I/O, no clock) |                       peer
    local program ---- receive_local* ----------------->+                          +---- ToPeer, EndPeer -->

A layer is called with what happened and returns what is to be done, in order. It may keep bytes back, add some of its
own in either direction, or delay an end; it never waits. Time is an argument: `now` is in seconds of any one clock.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Abort", "EndLocal", "EndPeer", "Layer", "Output", "ResetLocal", "ToLocal", "ToPeer"]


@dataclass(slots=True)  # frozen would make it three times as costly, and there is one for each message
class ToLocal:
    """Write bytes to the local program."""

    data: bytes


@dataclass(slots=True)  # likewise
class ToPeer:
    """Send bytes to the peer."""

    data: bytes


@dataclass(frozen=True)
class EndLocal:
    """End the direction to the local program; the other direction stays open."""


@dataclass(frozen=True)
class EndPeer:
    """End the direction to the peer; the other direction stays open."""


@dataclass(frozen=True)
class ResetLocal:
    """The stream is lost: end the connection to the local program without an orderly end."""


@dataclass(frozen=True)
class Abort:
    """End both sides without an orderly end."""

    reason: str
    """A sentence for the peer and for the log."""


Output = ToLocal | ToPeer | EndLocal | EndPeer | ResetLocal | Abort


class Layer:
    """Passes everything on unchanged; subclasses override what they care about."""

    is_finished = False
    """True once this layer passes everything on unchanged for good; it is then taken out."""

    def start(self, now: float) -> list[Output]:  # noqa: ARG002 - part of the interface, as below
        """Return what is to be done before anything is received."""
        return []

    def receive_local(self, data: bytes, now: float) -> list[Output]:  # noqa: ARG002
        """Take bytes of the local program."""
        return [ToPeer(data)]

    def receive_peer(self, data: bytes, now: float) -> list[Output]:  # noqa: ARG002
        """Take bytes of the peer."""
        return [ToLocal(data)]

    def receive_local_eof(self, now: float) -> list[Output]:  # noqa: ARG002
        """Note that the local program has ended its direction."""
        return [EndPeer()]

    def receive_peer_eof(self, now: float) -> list[Output]:  # noqa: ARG002
        """Note that the peer has ended its direction."""
        return [EndLocal()]

    def receive_peer_lost(self, now: float) -> list[Output]:  # noqa: ARG002
        """Note that the stream is lost; bytes for the peer are dropped from now on."""
        return [ResetLocal()]

    def next_deadline(self) -> float | None:
        """Return when `tick` should be called, or None."""
        return None

    def tick(self, now: float) -> list[Output]:  # noqa: ARG002
        """Note that time has passed."""
        return []
