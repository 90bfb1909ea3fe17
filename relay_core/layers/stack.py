"""Stack of layers: the outputs of a layer become events of its neighbour, or outputs of the stack at either end.

    receive_local --> splitter --> first layer --> ... --> last layer --> exit --> ToPeer
    ToLocal  <--  exit  <--  first layer <-- ... <-- last layer <-- splitter <-- receive_peer

The stack cuts each direction into messages, once, as long as one of its layers reads them. At the exit, a message that
a layer has added waits until it would not be inside another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic

from relay_core.layers.layer import Abort, EndLocal, EndPeer, Event, Layer, Output, ResetLocal, ToLocal, ToPeer
from relay_core.layers.piece import Kind, PieceType
from relay_core.layers.splitter import MessageSplitter

__all__ = ["LayerStack"]

_CLOSED = frozenset({Kind.FOREIGN, Kind.BROKEN, Kind.CUT})
"""Bytes after which nothing can be added any more."""


class LayerStack:
    """The layers of one connection. Its methods mirror those of `Layer`, with bytes instead of pieces.

    Args:
        layers: The first one is next to the local program, the last one next to the peer.
        from_local: The splitter of an earlier stack, if the local program and its stream remain the same.
    """

    def __init__(self, layers: Iterable[Layer] = (), from_local: MessageSplitter[ToPeer] | None = None) -> None:
        self._layers = list(layers)
        self._from_local = from_local or MessageSplitter(ToPeer)
        self._from_peer = MessageSplitter(ToLocal)
        self._to_local: _Exit[ToLocal] = _Exit()
        self._to_peer: _Exit[ToPeer] = _Exit()
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
        return self._left(done, now)

    def receive_local(self, data: bytes, now: float) -> list[Output]:
        """Handle bytes of the local program; return the outputs."""
        longest = max([layer.longest_local for layer in self._layers], default=0)
        return self._enter(self._from_local.feed(data, longest) if longest else [ToPeer(data)], now)

    def receive_peer(self, data: bytes, now: float) -> list[Output]:
        """Handle bytes of the peer; return the outputs."""
        longest = max([layer.longest_peer for layer in self._layers], default=0)
        return self._enter(self._from_peer.feed(data, longest) if longest else [ToLocal(data)], now)

    def receive_local_eof(self, now: float) -> list[Output]:
        """Handle EOF of the local program; return the outputs."""
        return self._enter([*self._from_local.end(), EndPeer()], now)

    def receive_peer_eof(self, now: float) -> list[Output]:
        """Handle EOF of the peer; return the outputs."""
        return self._enter([*self._from_peer.end(), EndLocal()], now)

    def receive_peer_lost(self, now: float) -> list[Output]:
        """Handle the loss of the stream; return the outputs."""
        return self._enter([*self._from_peer.end(), ResetLocal()], now)

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
        return self._left(done, now)

    def _enter(self, events: Iterable[Event], now: float) -> list[Output]:
        """Route events from the end of the stack at which they enter."""
        done: list[Output] = []
        for event in events:
            self._route(-1 if event.step > 0 else len(self._layers), [event], now, done)
        return self._left(done, now)

    def _route(self, index: int, outputs: Iterable[Output], now: float, done: list[Output]) -> None:
        """Pass the outputs of a layer to its neighbours, depth first; append those that leave the stack to `done`."""
        layers = self._layers
        for output in outputs:
            if isinstance(output, Abort):  # it concerns both sides, so that no layer may hold it back
                done.append(output)
                continue
            at = index + output.step
            while 0 <= at < len(layers):
                passed = output.enter(layers[at], now)
                if not (len(passed) == 1 and passed[0] is output):
                    self._route(at, passed, now, done)
                    break
                at += output.step
            else:
                done += self._leave(output)

    def _leave(self, event: Event) -> list[Output]:
        """Return what leaves the stack because of an event that no layer is left for."""
        if isinstance(event, ToLocal):
            return [*self._to_local.leave(event)]
        return [*self._to_peer.leave(event)] if isinstance(event, ToPeer) else [event]

    def _left(self, done: list[Output], now: float) -> list[Output]:
        """Remove layers that have finished; return the outputs, in which bytes of one direction are one output."""
        # Not while outputs are routed, because `_route` identifies layers by their index.
        if any(layer.is_finished for layer in self._layers):
            self._layers = [layer for layer in self._layers if not layer.is_finished]
            self._sort()
            done += self._released(now)
        return _joined(done) if len(done) > 1 else done

    def _released(self, now: float) -> list[Output]:
        """Return the incomplete messages that no layer waits for any more."""
        done: list[Output] = []
        if not any(layer.longest_local for layer in self._layers):
            self._route(-1, self._from_local.end(Kind.PLAIN), now, done)
        if not any(layer.longest_peer for layer in self._layers):
            self._route(len(self._layers), self._from_peer.end(Kind.PLAIN), now, done)
        return done

    def _sort(self) -> None:
        self._timed = [layer for layer in self._layers if type(layer).next_deadline is not Layer.next_deadline]


class _Exit(Generic[PieceType]):
    """Where the bytes of one direction leave the stack."""

    def __init__(self) -> None:
        self._last = Kind.PLAIN
        """What left last."""
        self._waiting: list[PieceType] = []

    def leave(self, piece: PieceType) -> list[PieceType]:
        """Return what leaves now. The only messages that come between two parts are those that a layer has added."""
        if piece.kind is Kind.MESSAGE and self._last is Kind.PART:
            self._waiting.append(piece)
            return []
        if piece.kind is Kind.MESSAGE and self._last in _CLOSED:
            return []
        self._last = piece.kind
        if piece.kind is not Kind.LAST_PART or not self._waiting:
            return [piece]
        waiting, self._waiting = self._waiting, []
        return [piece, *waiting]


def _joined(outputs: list[Output]) -> list[Output]:
    """Return the same outputs, in which bytes of one direction are one: a message each would be a packet each."""
    joined: list[Output] = []
    to_peer: list[bytes] = []
    to_local: list[bytes] = []

    def join() -> None:
        joined.extend([ToPeer(b"".join(to_peer))] if to_peer else [])
        joined.extend([ToLocal(b"".join(to_local))] if to_local else [])
        to_peer.clear()
        to_local.clear()

    for output in outputs:
        if isinstance(output, ToPeer):
            to_peer.append(output.data)
        elif isinstance(output, ToLocal):
            to_local.append(output.data)
        else:
            join()
            joined.append(output)
    join()
    return joined
