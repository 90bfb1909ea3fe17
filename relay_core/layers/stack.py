"""Several layers as one: what one layer returns is received by its neighbour, or leaves at the end of the stack."""

from __future__ import annotations

from collections.abc import Iterable

from relay_core.layers.layer import Abort, EndLocal, EndPeer, Layer, Output, ResetLocal, ToLocal, ToPeer

__all__ = ["LayerStack"]


class LayerStack:
    """Layers between a local socket and a stream.

    Args:
        layers: The first one is next to the local program, the last one next to the peer.
    """

    def __init__(self, layers: Iterable[Layer] = ()) -> None:
        self._layers = list(layers)
        self._only: Layer | None = None
        """The layer, if there is one only: the usual case, and on the way of every byte."""
        self._timed: list[Layer] = []
        """Those that ever have a deadline."""
        self._sort()

    def __len__(self) -> int:
        return len(self._layers)

    def __repr__(self) -> str:
        return f"<LayerStack {self._layers}>"

    def start(self, now: float) -> list[Output]:
        """Start every layer; return what is to be done."""
        done: list[Output] = []
        for index, layer in enumerate(self._layers):
            self._route(index, layer.start(now), now, done)
        return self._pruned(done)

    def receive_local(self, data: bytes, now: float) -> list[Output]:
        """Take bytes of the local program; return what is to be done."""
        if self._only is None:
            return self._enter(ToPeer(data), now)
        return self._pruned(self._only.receive_local(data, now))

    def receive_peer(self, data: bytes, now: float) -> list[Output]:
        """Take bytes of the peer; return what is to be done."""
        if self._only is None:
            return self._enter(ToLocal(data), now)
        return self._pruned(self._only.receive_peer(data, now))

    def receive_local_eof(self, now: float) -> list[Output]:
        """Note that the local program has ended its direction; return what is to be done."""
        return self._enter(EndPeer(), now)

    def receive_peer_eof(self, now: float) -> list[Output]:
        """Note that the peer has ended its direction; return what is to be done."""
        return self._enter(EndLocal(), now)

    def receive_peer_lost(self, now: float) -> list[Output]:
        """Note that the stream is lost; return what is to be done."""
        return self._enter(ResetLocal(), now)

    def next_deadline(self) -> float | None:
        """Return when `tick` should be called, or None."""
        earliest: float | None = None
        for layer in self._timed:
            deadline = layer.next_deadline()
            if deadline is not None and (earliest is None or deadline < earliest):
                earliest = deadline
        return earliest

    def tick(self, now: float) -> list[Output]:
        """Note that time has passed; return what is to be done."""
        done: list[Output] = []
        for index, layer in enumerate(self._layers):
            self._route(index, layer.tick(now), now, done)
        return self._pruned(done)

    def _enter(self, event: Output, now: float) -> list[Output]:
        """Let something happen at the end of the stack that it comes from."""
        done: list[Output] = []
        self._route(-1 if _is_upward(event) else len(self._layers), [event], now, done)
        return self._pruned(done)

    def _route(self, index: int, outputs: list[Output], now: float, done: list[Output]) -> None:
        """Let the neighbours of a layer receive its outputs, each before the next; add to `done` what leaves."""
        for output in outputs:
            neighbour = index + 1 if _is_upward(output) else index - 1
            if isinstance(output, Abort) or not 0 <= neighbour < len(self._layers):
                done.append(output)
            else:
                self._route(neighbour, _receive(self._layers[neighbour], output, now), now, done)

    def _pruned(self, done: list[Output]) -> list[Output]:
        # Only between two calls: layers are known by their index while outputs are routed.
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
    """True for what travels from the local program to the peer."""
    return isinstance(output, (ToPeer, EndPeer))


def _receive(layer: Layer, output: Output, now: float) -> list[Output]:
    """Let a layer receive what its neighbour has returned."""
    if isinstance(output, ToPeer):
        return layer.receive_local(output.data, now)
    if isinstance(output, ToLocal):
        return layer.receive_peer(output.data, now)
    if isinstance(output, EndPeer):
        return layer.receive_local_eof(now)
    if isinstance(output, EndLocal):
        return layer.receive_peer_eof(now)
    return layer.receive_peer_lost(now)
