"""The agent's prefetch layer, between debugpy and the stream of one debugger; see `relay_core.dap.prefetch`.

The layer sends debugpy the requests in the client's prefetch set. If the process prefetches
(`relay_agent.prefetch.in_process`), the layer instead passes the set on to the process and the prefetch events to the
client. It does not delay, drop or change any message between editor and debugpy.
"""

from __future__ import annotations

from relay_agent.prefetch.engine import PrefetchEngine, PrefetchOutput
from relay_core.dap import prefetch
from relay_core.dap.framing import MAX_BODY, encode
from relay_core.dap.messages import Arguments, Request
from relay_core.dap.prefetch import arguments_of, parse
from relay_core.dap.splitter import MAX_PARSED, MessageSplitter
from relay_core.layers.layer import EndLocal, EndPeer, Layer, Output, ToLocal, ToPeer

__all__ = ["PrefetchLayer"]

_EVENTS = (b'"stopped"', b'"%b"' % prefetch.IN_PROCESS.encode())
"""The events that this layer handles, as JSON strings."""


class PrefetchLayer(Layer):
    """The layer of one debugger's connection: debugpy is the local program, the client is the peer."""

    def __init__(self) -> None:
        self._from_editor = MessageSplitter()
        self._from_debugger = MessageSplitter()
        self._engine = PrefetchEngine()
        self._in_process = False
        """Whether the process has announced that it prefetches."""
        self._new_set: Arguments = {}
        """The prefetch set, if it has not been passed on to the process yet."""
        self._after = 0
        """Sequence number of the editor's last request that may change something."""

    def __repr__(self) -> str:
        return f"<PrefetchLayer {'in process' if self._in_process else self._engine!r}>"

    def receive_peer(self, data: bytes, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Handle bytes of the client; return those for debugpy."""
        onward: list[bytes] = []
        for piece in self._from_editor.feed(data):
            request = parse(piece.body, "request")
            if request and request["command"] == prefetch.PREFETCH_SET:
                self._new_set = arguments_of(request)
                self._engine.replace_set(self._new_set.get("questions"))
                continue
            if request is None or not prefetch.is_read_only(request):
                self._after = request["seq"] if request else 0
                self._engine.change_requested(request)
            if self._in_process and request and (request["command"] in prefetch.RESUMING or prefetch.is_watch(request)):
                onward.append(encode(self._with_prefetch_set(request)))
            else:
                onward.append(piece.raw)
        if self._from_editor.is_foreign and self._from_debugger.is_untouched:
            self.is_finished = True  # this is not a debugger's connection
        return [ToLocal(b"".join(onward))] if onward else []

    def receive_local(self, data: bytes, now: float) -> list[Output]:
        """Handle bytes of debugpy; return those for the client, and prefetch requests for debugpy."""
        onward, requests = [], b""
        # While prefetch requests are pending, parse large messages too: their responses must not reach the editor.
        self._from_debugger.max_parsed = MAX_BODY if self._engine.is_waiting else MAX_PARSED
        for piece in self._from_debugger.feed(data):
            passed_on, requested = self._handle_local(piece.raw, piece.body, now)
            onward.append(passed_on)
            requests += requested
        outputs: list[Output] = [ToPeer(to_peer)] if (to_peer := b"".join(onward)) else []
        return [*outputs, ToLocal(requests)] if requests else outputs

    def receive_peer_eof(self, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Pass EOF on, after the incomplete message of the client if there is one."""
        rest = self._from_editor.end()
        return [ToLocal(rest), EndLocal()] if rest else [EndLocal()]

    def receive_peer_lost(self, now: float) -> list[Output]:
        """Pass the client's incomplete message on, and then the loss."""
        rest = self._from_editor.end()
        outputs = super().receive_peer_lost(now)
        return [ToLocal(rest), *outputs] if rest else outputs

    def receive_local_eof(self, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Pass EOF on, after the incomplete message of debugpy if there is one."""
        rest = self._from_debugger.end()
        return [ToPeer(rest), EndPeer()] if rest else [EndPeer()]

    def _with_prefetch_set(self, request: Request) -> Request:
        """Add to a request the argument that makes the process prefetch."""
        argument, self._new_set = {**self._new_set, "after": self._after}, {}
        return {**request, "arguments": {**arguments_of(request), prefetch.PREFETCH_SET: argument}}

    def _handle_local(self, raw: bytes, body: bytes, now: float) -> tuple[bytes, bytes]:
        """Handle a piece of debugpy's stream; return bytes for the client and requests for debugpy."""
        if not self._from_editor.at_boundary:
            self._engine.change_requested(None)  # a request would be inserted into the editor's incomplete message
        is_awaited = self._engine.is_waiting or self._engine.is_watching
        if is_awaited and b'"response"' in body and (response := parse(body, "response")):
            if self._engine.has_requested(response):
                return self._encode(self._engine.response_received(response, len(body), now))
            announced, requests = self._encode(self._engine.watch_answered(response, self._after, now))
            return announced + raw, requests
        if any(name in body for name in _EVENTS) and (event := parse(body, "event")):
            match event:
                case {"event": "stopped", "body": {prefetch.PREFETCH_EVENT: prefetched, **stop}}:
                    event["body"] = stop  # the editor gets its `stopped` event unchanged
                    return encode(event) + encode(
                        {"seq": 0, "type": "event", "event": prefetch.PREFETCH_EVENT, "body": prefetched}
                    ), b""
                case {"event": "stopped", "body": {"threadId": int(thread)}}:
                    if not self._in_process and self._from_editor.at_boundary:
                        announced, requests = self._encode(self._engine.begin_stop(thread, self._after, now))
                        return raw + announced, requests
                case {"event": prefetch.IN_PROCESS}:
                    self._in_process = True
                    return b"", b""
        return raw, b""

    def _encode(self, output: PrefetchOutput) -> tuple[bytes, bytes]:
        """Return bytes for the client and for debugpy."""
        return encode(output.event) if output.event else b"", b"".join(map(encode, output.requests))
