"""The agent's layer for prefetching (`relay_core.dap.prefetch`), in the stream of one debugger.

It sends debugpy the requests of the client's prefetch set; or, beside a process that prefetches itself
(`relay_agent.prefetch.pydevd`), it hands the set down and passes the results on. Nothing that editor and debugpy send
each other is delayed, dropped or changed.
"""

from __future__ import annotations

from relay_agent.prefetch.engine import Asking, Said
from relay_core.dap import prefetch
from relay_core.dap.framing import MAX_BODY, encode
from relay_core.dap.messages import Arguments, Request
from relay_core.dap.prefetch import arguments_of, parse
from relay_core.dap.splitter import MAX_PARSED, MessageSplitter
from relay_core.layers.layer import EndLocal, EndPeer, Layer, Output, ToLocal, ToPeer

__all__ = ["PrefetchLayer"]

_EVENTS = (b'"stopped"', b'"%b"' % prefetch.IN_PROCESS.encode())
"""Events that mean something here, as they stand in JSON."""


class PrefetchLayer(Layer):
    """One debugger's connection: debugpy is the local program, the client is the peer."""

    def __init__(self) -> None:
        self._from_editor = MessageSplitter()
        self._from_debugger = MessageSplitter()
        self._asking = Asking()
        self._job_asks = False
        """Whether the process has said that it prefetches itself."""
        self._new_plan: Arguments = {}
        """The prefetch set, if a process that prefetches itself does not have it yet."""
        self._after = 0
        """Number of the last request of the editor that may change something."""

    def __repr__(self) -> str:
        return f"<PrefetchLayer {'by the job' if self._job_asks else self._asking!r}>"

    def receive_peer(self, data: bytes, now: float) -> list[Output]:  # noqa: ARG002 - nothing here takes time
        """Take bytes of the client; return those for debugpy."""
        onward: list[bytes] = []
        for piece in self._from_editor.feed(data):
            request = parse(piece.body, "request")
            if request and request["command"] == prefetch.PREFETCH_SET:
                self._new_plan = arguments_of(request)
                self._asking.plan(self._new_plan.get("questions"))
                continue
            if request is None or not prefetch.is_read_only(request):
                self._after = request["seq"] if request else 0
                self._asking.end_round()  # the editor may let the process go on
            if self._job_asks and request and request["command"] in prefetch.RESUMING:
                onward.append(encode(self._with_plan(request)))
            else:
                onward.append(piece.raw)
        if self._from_editor.is_foreign and self._from_debugger.is_untouched:
            self.is_finished = True  # this is not a debugger's connection
        return [ToLocal(b"".join(onward))] if onward else []

    def receive_local(self, data: bytes, now: float) -> list[Output]:
        """Take bytes of debugpy; return those for the client, and requests for debugpy."""
        onward, requests = [], b""
        # No answer of ours may slip through:
        self._from_debugger.max_parsed = MAX_BODY if self._asking.is_waiting else MAX_PARSED
        for piece in self._from_debugger.feed(data):
            told, asked = self._hear(piece.raw, piece.body, now)
            onward.append(told)
            requests += asked
        outputs: list[Output] = [ToPeer(to_peer)] if (to_peer := b"".join(onward)) else []
        return [*outputs, ToLocal(requests)] if requests else outputs

    def receive_peer_eof(self, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Pass the end on, behind what the client has begun to say."""
        rest = self._from_editor.end()
        return [ToLocal(rest), EndLocal()] if rest else [EndLocal()]

    def receive_peer_lost(self, now: float) -> list[Output]:
        """Pass on what the client has begun to say, and then the loss."""
        rest = self._from_editor.end()
        outputs = super().receive_peer_lost(now)
        return [ToLocal(rest), *outputs] if rest else outputs

    def receive_local_eof(self, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Pass the end on, behind what debugpy has begun to say."""
        rest = self._from_debugger.end()
        return [ToPeer(rest), EndPeer()] if rest else [EndPeer()]

    def _with_plan(self, request: Request) -> Request:
        """Return a request at which the process resumes, with what it needs to prefetch at the next stop."""
        plan, self._new_plan = {**self._new_plan, "after": self._after}, {}
        return {**request, "arguments": {**arguments_of(request), prefetch.PREFETCH_SET: plan}}

    def _hear(self, raw: bytes, body: bytes, now: float) -> tuple[bytes, bytes]:
        """Return what a piece is to the client, and what to ask for next."""
        if not self._from_editor.at_boundary:
            self._asking.end_round()  # there is no room for requests
        if self._asking.is_waiting and b'"response"' in body and (response := parse(body, "response")):
            if self._asking.has_asked(response):
                return self._send(self._asking.answered(response, len(body), now))
        elif any(name in body for name in _EVENTS) and (event := parse(body, "event")):
            match event:
                case {"event": "stopped", "body": {prefetch.PREFETCH_EVENT: news, **stop}}:
                    event["body"] = stop
                    return encode(event) + encode(
                        {"seq": 0, "type": "event", "event": prefetch.PREFETCH_EVENT, "body": news}
                    ), b""
                case {"event": "stopped", "body": {"threadId": int(thread)}}:
                    if not self._job_asks and self._from_editor.at_boundary:
                        told, requests = self._send(self._asking.stopped(thread, self._after, now))
                        return raw + told, requests
                case {"event": prefetch.IN_PROCESS}:
                    self._job_asks = True
                    return b"", b""
        return raw, b""

    def _send(self, said: Said) -> tuple[bytes, bytes]:
        """Return bytes for the client, and for debugpy."""
        return encode(said.news) if said.news else b"", b"".join(map(encode, said.requests))
