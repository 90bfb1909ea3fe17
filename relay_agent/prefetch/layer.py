"""The agent's prefetch layer, between debugpy and the stream of one debugger; see `relay_core.dap.prefetch`.

The layer sends debugpy the requests in the client's prefetch set. If the process prefetches
(`relay_agent.prefetch.in_process`), the layer instead passes the set on to the process and the prefetch events to the
client. It does not delay, drop or change any message between the editor and debugpy.

What is ugly: the layer numbers its own requests from a range that no editor reaches, and removes their responses from
the stream. A connection of its own to debugpy would be cleaner, but debugpy's adapter accepts one client.
"""

from __future__ import annotations

from relay_agent.prefetch.engine import PrefetchEngine, PrefetchOutput
from relay_core.dap import prefetch
from relay_core.dap.framing import MAX_BODY
from relay_core.dap.messages import Arguments, Body, Event, Request, arguments_of
from relay_core.layers.layer import Layer, Output, ToLocal, ToPeer
from relay_core.layers.piece import MAX_PARSED

_EVENTS = frozenset({"stopped", prefetch.IN_PROCESS})
"""The events that this layer handles."""


class PrefetchLayer(Layer):
    """The layer for one debugger's connection: debugpy is the local program, and the client is the peer."""

    longest_peer = MAX_PARSED

    def __init__(self) -> None:
        self._is_inside = False
        """Whether the editor is in the middle of a message that is too long to be parsed."""
        self._engine = PrefetchEngine()
        self._in_process = False
        """Whether the process has announced that it prefetches."""
        self._new_set: Arguments = {}
        """The prefetch set, if it has not been passed on to the process yet."""
        self._after = 0
        """Sequence number of the editor's last request that may change something."""

    @property
    def longest_local(self) -> int:  # type: ignore[override] # it changes
        """Large messages are read while requests are pending: their responses must not reach the editor."""
        return MAX_BODY if self._engine.is_waiting else MAX_PARSED

    def receive_peer(self, piece: ToLocal, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Handle a message from the client; return it for debugpy."""
        self._is_inside = not piece.can_be_followed
        request = piece.request()
        if request and request["command"] == prefetch.PREFETCH_SET:
            self._new_set = arguments_of(request)
            self._engine.replace_set(self._new_set.get("requests"))
            return []
        if request is None or not prefetch.is_read_only(request):
            self._after = request["seq"] if request else 0
            self._engine.change_requested(request)
        self.is_finished |= piece.is_foreign  # then this is not a debugger's connection
        if self._in_process and request and (request["command"] in prefetch.RESUMING or prefetch.is_watch(request)):
            return [ToLocal.of(self._with_prefetch_set(request))]
        return [piece]

    def receive_local(self, piece: ToPeer, now: float) -> list[Output]:
        """Handle a message from debugpy; return messages for the client, and prefetch requests for debugpy."""
        if self._is_inside:
            self._engine.change_requested(None)  # what is requested now reaches debugpy after the editor's message
        if piece.name in _EVENTS and (event := piece.event(any_length=True)):
            return self._handle_event(event, piece, now)
        is_awaited = self._engine.is_waiting or self._engine.is_watching
        # A long message may have no head, but it may be a response that must not reach the editor.
        if is_awaited and piece.type in {"response", ""} and (response := piece.response(any_length=True)):
            if self._engine.has_requested(response):
                return _outputs(self._engine.response_received(response, len(piece.whole_body), now))
            prefetched = _outputs(self._engine.watch_answered(response, self._after, now))
            return [*prefetched, piece]  # the announcement arrives before the editor requests anything
        return [piece]

    def _handle_event(self, event: Event, piece: ToPeer, now: float) -> list[Output]:
        match event:
            case {"event": "stopped", "body": {prefetch.PREFETCH_EVENT: prefetched, **stop}}:
                # the editor gets its `stopped` event unchanged
                return [ToPeer.of({**event, "body": stop}), ToPeer.of(_prefetch_event(prefetched))]
            case {"event": "stopped", "body": {"threadId": int(thread)}}:
                if not (self._in_process or self._is_inside):
                    return [piece, *_outputs(self._engine.begin_stop(thread, self._after, now))]
            case {"event": prefetch.IN_PROCESS}:
                self._in_process = True
                return []
        return [piece]

    def _with_prefetch_set(self, request: Request) -> Request:
        """Return a request with the argument that makes the process prefetch."""
        argument, self._new_set = {**self._new_set, "after": self._after}, {}
        return {**request, "arguments": {**arguments_of(request), prefetch.PREFETCH_SET: argument}}


def _outputs(output: PrefetchOutput) -> list[Output]:
    """Return messages for the client, and requests for debugpy."""
    event: list[Output] = [ToPeer.of(output.event)] if output.event else []
    return [*event, *map(ToLocal.of, output.requests)]


def _prefetch_event(body: Body) -> Event:
    return {"seq": 0, "type": "event", "event": prefetch.PREFETCH_EVENT, "body": body}
