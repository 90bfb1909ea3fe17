"""The agent's prefetch layer, between debugpy and the stream of one debugger; see `relay_core.dap.prefetch`.

The layer sends debugpy the requests in the client's prefetch set. It does not delay, drop or change any message between
the editor and debugpy.

Rejected: prefetching in the job, where pydevd sends the requests to itself and bypasses debugpy's adapter. That saves 3
ms per step and needs patches to pydevd in every debugged process (docs/concepts/prefetch.md).

What is ugly: the layer numbers its own requests from a range that no editor reaches, and removes their responses from
the stream. A connection of its own to debugpy would be cleaner, but debugpy's adapter accepts one client.
"""

from __future__ import annotations

from relay_agent.prefetch.engine import PrefetchEngine, PrefetchOutput
from relay_core.dap import prefetch
from relay_core.dap.framing import MAX_BODY
from relay_core.dap.messages import arguments_of
from relay_core.layers.layer import Layer, Output, ToLocal, ToPeer
from relay_core.layers.piece import MAX_PARSED


class PrefetchLayer(Layer):
    """The layer for one debugger's connection: debugpy is the local program, and the client is the peer."""

    longest_peer = MAX_PARSED

    def __init__(self) -> None:
        self._is_inside = False
        """Whether the editor is in the middle of a message that is too long to be parsed."""
        self._engine = PrefetchEngine()
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
            self._engine.replace_set(arguments_of(request).get("requests"))
            return []
        if request is None or not prefetch.is_read_only(request):
            self._after = request["seq"] if request else 0
            self._engine.change_requested(request)
        self.is_finished |= piece.is_foreign  # then this is not a debugger's connection
        return [piece]

    def receive_local(self, piece: ToPeer, now: float) -> list[Output]:
        """Handle a message from debugpy; return messages for the client, and prefetch requests for debugpy."""
        if self._is_inside:
            self._engine.change_requested(None)  # what is requested now reaches debugpy after the editor's message
        elif piece.name == "stopped" and (event := piece.event(any_length=True)):
            match event.get("body"):
                case {"threadId": int(thread)}:
                    return [piece, *_outputs(self._engine.begin_stop(thread, self._after, now))]
        is_awaited = self._engine.is_waiting or self._engine.is_watching
        # A long message may have no head, but it may be a response that must not reach the editor.
        if is_awaited and piece.type in {"response", ""} and (response := piece.response(any_length=True)):
            if self._engine.has_requested(response):
                return _outputs(self._engine.response_received(response, len(piece.whole_body), now))
            prefetched = _outputs(self._engine.watch_answered(response, self._after, now))
            return [*prefetched, piece]  # the announcement arrives before the editor requests anything
        return [piece]


def _outputs(output: PrefetchOutput) -> list[Output]:
    """Return messages for the client, and requests for debugpy."""
    event: list[Output] = [ToPeer.of(output.event)] if output.event else []
    return [*event, *map(ToLocal.of, output.requests)]
