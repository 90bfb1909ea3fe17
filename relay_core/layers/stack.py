"""Stack of layers: the outputs of a layer become events of its neighbour, or outputs of the stack at either end.

    receive_local --> splitter --> first layer --> ... --> last layer --> exit --> ToPeer
    ToLocal  <--  exit  <--  first layer <-- ... <-- last layer <-- splitter <-- receive_peer

The stack cuts each direction into messages, once, as long as one of its layers reads them. At the exit, a message that
a layer has added waits until it would not be inside another message.

Each step in a debugger sends about ten messages through all layers, so little is done for each message and layer: a
layer that does not handle a message by its name is not called.

Why layers are objects with methods, and not coroutines or generators that read a stream: a layer has to answer, hold
back and add messages in both directions at once, and a generator is suspended in one place. Why no I/O and no tasks: a
message passes all layers in one call, and order between them needs no locks.

Invariants: bytes that no layer changes leave as they came, byte for byte; an added message is never placed inside
another one, whatever its direction; a direction is cut only while a layer reads it, so that what is not DAP costs
nothing but the passing on; a layer is removed only between two events, because layers are known by their index.

What is ugly: whether a layer has changed an event is decided by identity. A layer that returns an equal copy is
correct, but slower, and nothing reports it. And the names that a layer handles are read when the stack is built or
shrinks, so a layer cannot change them later; `longest_local` and `longest_peer` are read each time, because one does.
"""

from __future__ import annotations

from collections.abc import Iterable

from relay_core.layers.layer import (
    TO_LOCAL,
    TO_PEER,
    Abort,
    EndLocal,
    EndPeer,
    Event,
    Layer,
    Output,
    ResetLocal,
    ToLocal,
    ToPeer,
)
from relay_core.layers.piece import Kind, MessageSplitter, Piece


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
        self._to_local = _Exit()
        self._to_peer = _Exit()
        self._timed: list[Layer] = []
        """The layers that may have a deadline."""
        self._names: dict[int, list[frozenset[str] | None]] = {}
        """For each direction, the names of the messages that each layer handles."""
        self._sort()

    def __len__(self) -> int:
        return len(self._layers)

    def __repr__(self) -> str:
        return f"<LayerStack {self._layers}>"

    def start(self, now: float) -> list[Output]:
        """Start every layer; return the outputs."""
        done: list[Output] = []
        for index, layer in enumerate(self._layers):
            self._pass_on(index, layer.start(now), now, done)
        return self._finish(done, now)

    def receive_local(self, data: bytes, now: float) -> list[Output]:
        """Handle bytes from the local program; return the outputs."""
        # Not stored: while responses to its own requests are pending, the prefetch layer reads longer messages.
        longest = max([layer.longest_local for layer in self._layers], default=0)
        return self._enter(-1, self._from_local.feed(data, longest) if longest else [ToPeer(data)], now)

    def receive_peer(self, data: bytes, now: float) -> list[Output]:
        """Handle bytes from the peer; return the outputs."""
        longest = max([layer.longest_peer for layer in self._layers], default=0)
        return self._enter(len(self._layers), self._from_peer.feed(data, longest) if longest else [ToLocal(data)], now)

    def receive_local_eof(self, now: float) -> list[Output]:
        """Handle EOF from the local program; return the outputs."""
        return self._enter(-1, [*self._from_local.end(), EndPeer()], now)

    def receive_peer_eof(self, now: float) -> list[Output]:
        """Handle EOF from the peer; return the outputs."""
        return self._enter(len(self._layers), [*self._from_peer.end(), EndLocal()], now)

    def receive_peer_lost(self, now: float) -> list[Output]:
        """Handle the loss of the stream; return the outputs."""
        return self._enter(len(self._layers), [*self._from_peer.end(), ResetLocal()], now)

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
            self._pass_on(index, layer.tick(now), now, done)
        return self._finish(done, now)

    def _enter(self, index: int, events: Iterable[Event], now: float) -> list[Output]:
        """Route events from an end of the stack, as if they were outputs of a layer with that index."""
        done: list[Output] = []
        self._pass_on(index, events, now, done)
        return self._finish(done, now)

    def _pass_on(self, index: int, outputs: Iterable[Output], now: float, done: list[Output]) -> None:
        """Pass the outputs of a layer to its neighbours, depth first; append those that leave the stack to `done`."""
        for output in outputs:
            if isinstance(output, Abort):  # it concerns both sides, so that no layer may hold it back
                done.append(output)
            else:
                self._route(index + output.step, output, now, done)

    def _route(self, at: int, event: Event, now: float, done: list[Output]) -> None:
        """Pass an event to the layer at an index and those behind it."""
        step, layers, names = event.step, self._layers, self._names[event.step]
        name = event.name if isinstance(event, Piece) and event.is_message else None
        while 0 <= at < len(layers):
            handled = names[at]
            if handled is None or name is None or name in handled:
                passed = event.enter(layers[at], now)
                # Almost every event is passed on as it is. Identity proves this; comparing bytes would cost more.
                if not (len(passed) == 1 and passed[0] is event):
                    self._pass_on(at, passed, now, done)
                    return
            at += step
        self._leave(event, done)

    def _leave(self, event: Event, done: list[Output]) -> None:
        """Append to `done` what leaves the stack because of an event for which no layer is left."""
        if isinstance(event, ToLocal):
            self._to_local.leave(event, done)
        elif isinstance(event, ToPeer):
            self._to_peer.leave(event, done)
        else:
            done.append(event)

    def _finish(self, done: list[Output], now: float) -> list[Output]:
        """Remove layers that have finished; return the outputs, in which bytes of one direction are one output."""
        # Not while outputs are routed, because `_route` identifies layers by their index.
        for layer in self._layers:
            if layer.is_finished:
                self._layers = [layer for layer in self._layers if not layer.is_finished]
                self._sort()
                done += self._release(now)
                break
        return _joined(done) if len(done) > 1 else done

    def _release(self, now: float) -> list[Output]:
        """Return the incomplete messages that no layer is waiting for any longer."""
        done: list[Output] = []
        # The splitter keeps the beginning of a message until its end arrives. Without a reader, nobody needs it whole,
        # and the other side may be waiting for these bytes.
        if not any(layer.longest_local for layer in self._layers):
            self._pass_on(-1, self._from_local.end(Kind.PLAIN), now, done)
        if not any(layer.longest_peer for layer in self._layers):
            self._pass_on(len(self._layers), self._from_peer.end(Kind.PLAIN), now, done)
        return done

    def _sort(self) -> None:
        self._timed = [layer for layer in self._layers if type(layer).next_deadline is not Layer.next_deadline]
        self._names = {
            TO_PEER: [layer.local_names for layer in self._layers],
            TO_LOCAL: [layer.peer_names for layer in self._layers],
        }


class _Exit:
    """Where the bytes of one direction leave the stack."""

    def __init__(self) -> None:
        self._last: Kind = Kind.PLAIN
        """The kind of the piece that left last."""
        self._can_be_followed = True
        """Whether a message can be inserted after that piece."""
        self._waiting: list[ToLocal | ToPeer] = []

    def leave(self, piece: ToLocal | ToPeer, done: list[Output]) -> None:
        """Append what leaves now. The only messages that come between two parts are those that a layer has added."""
        if piece.is_message and not self._can_be_followed:
            if self._last is Kind.PART:  # nothing can be added to bytes that are not DAP
                self._waiting.append(piece)
            return
        self._last, self._can_be_followed = piece.kind, piece.can_be_followed
        done.append(piece)
        if self._waiting and piece.kind is Kind.LAST_PART:
            done += self._waiting
            self._waiting = []


def _joined(outputs: list[Output]) -> list[Output]:
    """Return the outputs, with the bytes of each direction joined: otherwise each message would become a packet."""
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
