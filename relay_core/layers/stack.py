"""Stack of layers: the outputs of a layer become events of its neighbour, or outputs of the stack at either end."""

from __future__ import annotations

from collections.abc import Iterable

from relay_core.layers.layer import Abort, EndLocal, EndPeer, Layer, Output, ResetLocal, ToLocal, ToPeer

__all__ = ["LayerStack"]


class LayerStack:
    """The layers of one connection. Its methods mirror those of `Layer`.

    Args:
        layers: The first one is next to the local program, the last one next to the peer.
    """

    def __init__(self, layers: Iterable[Layer] = ()) -> None:
        self._layers = list(layers)
        self._only: Layer | None = None
        """The layer if there is only one: a fast path for the usual case."""
        self._timed: list[Layer] = []
        """The layers that may have a deadline."""
        self._sort()

    def __len__(self) -> int:
        return len(self._layers)

    def __repr__(self) -> str:
        return f"<LayerStack {self._layers}>"

    def start(self, now: float) -> list[Output]:
        """Start every layer; return the outputs."""
        done: list[Output] = []
        for index, layer in enumerate(self._layers):
            self._route(index, layer.start(now), now, done)
        return self._pruned(done)

    def receive_local(self, data: bytes, now: float) -> list[Output]:
        """Handle bytes of the local program; return the outputs."""
        if self._only is None:
            return self._enter(ToPeer(data), now)
        return self._pruned(self._only.receive_local(data, now))

    def receive_peer(self, data: bytes, now: float) -> list[Output]:
        """Handle bytes of the peer; return the outputs."""
        if self._only is None:
            return self._enter(ToLocal(data), now)
        return self._pruned(self._only.receive_peer(data, now))

    def receive_local_eof(self, now: float) -> list[Output]:
        """Handle EOF of the local program; return the outputs."""
        return self._enter(EndPeer(), now)

    def receive_peer_eof(self, now: float) -> list[Output]:
        """Handle EOF of the peer; return the outputs."""
        return self._enter(EndLocal(), now)

    def receive_peer_lost(self, now: float) -> list[Output]:
        """Handle the loss of the stream; return the outputs."""
        return self._enter(ResetLocal(), now)

    def next_deadline(self) -> float | None:
        """Return when to call `tick`, or None."""
        earliest: float | None = None
        for layer in self._timed:
            deadline = layer.next_deadline()
            if deadline is not None and (earliest is None or deadline < earliest):
                earliest = deadline
        return earliest

    def tick(self, now: float) -> list[Output]:
        """Handle the passage of time; return the outputs."""
        done: list[Output] = []
        for index, layer in enumerate(self._layers):
            self._route(index, layer.tick(now), now, done)
        return self._pruned(done)

    def _enter(self, event: Output, now: float) -> list[Output]:
        """Route an event from the end of the stack at which it enters."""
        done: list[Output] = []
        self._route(-1 if _is_upward(event) else len(self._layers), [event], now, done)
        return self._pruned(done)

    def _route(self, index: int, outputs: list[Output], now: float, done: list[Output]) -> None:
        """Pass the outputs of a layer to its neighbours, depth first; append those that leave the stack to `done`."""
        for output in outputs:
            neighbour = index + 1 if _is_upward(output) else index - 1
            # An abort concerns both sides, so no layer may hold it back.
            if isinstance(output, Abort) or not 0 <= neighbour < len(self._layers):
                done.append(output)
            else:
                self._route(neighbour, _receive(self._layers[neighbour], output, now), now, done)

    def _pruned(self, done: list[Output]) -> list[Output]:
        # Not while outputs are routed, because `_route` identifies layers by their index.
        for layer in self._layers:
            if layer.is_finished:
                self._layers = [layer for layer in self._layers if not layer.is_finished]
                self._sort()
                break
        return done

    def _sort(self) -> None:
        self._only = self._layers[0] if len(self._layers) == 1 else None
        self._timed = [layer for layer in self._layers if type(layer).next_deadline is not Layer.next_deadline]


def _is_upward(output: Output) -> bool:
    """Whether an output travels from the local program to the peer."""
    return isinstance(output, (ToPeer, EndPeer))


def _receive(layer: Layer, output: Output, now: float) -> list[Output]:
    """Call a layer with an output of its neighbour, and return its own outputs."""
    if isinstance(output, ToPeer):
        return layer.receive_local(output.data, now)
    if isinstance(output, ToLocal):
        return layer.receive_peer(output.data, now)
    if isinstance(output, EndPeer):
        return layer.receive_local_eof(now)
    if isinstance(output, EndLocal):
        return layer.receive_peer_eof(now)
    return layer.receive_peer_lost(now)
