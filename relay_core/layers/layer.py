"""Interface of a layer between a local socket and a stream to the peer, sans-IO.

    local program <--- ToLocal, EndLocal, ResetLocal ---+                          +<--- receive_peer* ---
                                                        |  layer (no I/O, no clock) |                       peer
    local program ---- receive_local* ----------------->+                          +---- ToPeer, EndPeer -->

A layer is called with an event and returns outputs, in order. An event that it does not change is returned as it is,
because an output of one layer is an event for the next one. A layer may hold back bytes, add bytes in either direction,
or delay an EOF; it never blocks. Time is an argument: `now` is in seconds of one monotonic clock.

Bytes come in pieces (`relay_core.layers.piece`). If any layer reads Debug Adapter Protocol messages, the stack splits
the stream once, on behalf of all layers. Each piece is then either a whole message or part of other data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relay_core.layers.piece import Piece

TO_LOCAL, TO_PEER = -1, 1
"""Where an output goes: to the layer before this one, or to the layer after it."""


class ToLocal(Piece):
    """Write bytes to the local program."""

    __slots__ = ()
    step: ClassVar = TO_LOCAL

    def enter(self, layer: Layer, now: float) -> list[Output]:
        """Call a layer with this event."""
        return layer.receive_peer(self, now)


class ToPeer(Piece):
    """Send bytes to the peer."""

    __slots__ = ()
    step: ClassVar = TO_PEER

    def enter(self, layer: Layer, now: float) -> list[Output]:
        """Call a layer with this event."""
        return layer.receive_local(self, now)


@dataclass(frozen=True)
class EndLocal:
    """Send EOF to the local program; the other direction stays open."""

    step: ClassVar = TO_LOCAL

    def enter(self, layer: Layer, now: float) -> list[Output]:
        """Call a layer with this event."""
        return layer.receive_peer_eof(now)


@dataclass(frozen=True)
class EndPeer:
    """Send EOF to the peer; the other direction stays open."""

    step: ClassVar = TO_PEER

    def enter(self, layer: Layer, now: float) -> list[Output]:
        """Call a layer with this event."""
        return layer.receive_local_eof(now)


@dataclass(frozen=True)
class ResetLocal:
    """Reset the connection to the local program, because the stream is lost."""

    step: ClassVar = TO_LOCAL

    def enter(self, layer: Layer, now: float) -> list[Output]:
        """Call a layer with this event."""
        return layer.receive_peer_lost(now)


@dataclass(frozen=True)
class Abort:
    """Reset the connection to the local program, and abort the stream. This output passes through no other layer."""

    reason: str
    """The reason, as a sentence for the peer and the log."""


Event = ToLocal | ToPeer | EndLocal | EndPeer | ResetLocal
"""An output that the next layer receives."""
Output = Event | Abort


class Layer:
    """A layer that passes everything on unchanged; subclasses override some of its methods."""

    is_finished = False
    """True when this layer will pass on everything unchanged from now on; the stack then removes it."""
    longest_local = 0
    """Maximum size in bytes of the JSON in messages from the local program that this layer reads; 0 if it reads
    none."""
    longest_peer = 0
    """Like `longest_local`, but for messages from the peer."""
    local_names: frozenset[str] | None = None
    """Commands and events in messages from the local program that this layer handles; it is not called with any other
    messages. None if it handles all messages. It is always called with bytes that are not a whole message.
    """
    peer_names: frozenset[str] | None = None
    """Like `local_names`, but for messages from the peer."""

    def start(self, now: float) -> list[Output]:  # noqa: ARG002 - part of the interface, as below
        """Return outputs for the start of the connection."""
        return []

    def receive_local(self, piece: ToPeer, now: float) -> list[Output]:  # noqa: ARG002
        """Handle bytes from the local program."""
        return [piece]

    def receive_peer(self, piece: ToLocal, now: float) -> list[Output]:  # noqa: ARG002
        """Handle bytes from the peer."""
        return [piece]

    def receive_local_eof(self, now: float) -> list[Output]:  # noqa: ARG002
        """Handle EOF from the local program."""
        return [EndPeer()]

    def receive_peer_eof(self, now: float) -> list[Output]:  # noqa: ARG002
        """Handle EOF from the peer."""
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
