"""A layer that answers the requests of an attaching editor whose responses are known before debugpy has sent them.

    editor                       this layer                        debugpy
      | initialize                  | initialize                      |
      |    response                 |                                 |
      | attach                      | attach                          |
      |    initialized              |                                 |
      | setBreakpoints              | setBreakpoints                  |
      | setExceptionBreakpoints     | setExceptionBreakpoints         |
      |    response                 |        initialize: response     |  removed
      |                             |        initialized              |  removed
      |    setBreakpoints: response |        setBreakpoints: response |
      |                             |        setExc...: response      |  removed
      | configurationDone           | configurationDone               |
      |    response                 |        response                 |  removed
      |    stopped                  |        stopped                  |

So an editor attaches in two round trips, for the responses to `setBreakpoints` and for `stopped`, instead of four or
more. Every request reaches debugpy, in the same order; its adapter handles them in order. A response that is
other than expected is reported when it arrives:

    initialize, other capabilities      `capabilities` event
    initialize, a failure               the same failure is the response to `attach`
    another failure                     an `output` event
"""

from __future__ import annotations

import re

from relay_client.prefetch.capabilities import DEBUGPY_CAPABILITIES
from relay_core.dap.framing import encode
from relay_core.dap.messages import Body, Event, Request, Response
from relay_core.dap.prefetch import arguments_of, parse
from relay_core.dap.splitter import MessageSplitter, Piece
from relay_core.layers.layer import EndLocal, EndPeer, Layer, Output, ToLocal, ToPeer

__all__ = ["AttachAnswers"]

_SEQ = re.compile(rb'\s*\{\s*"seq"\s*:\s*([0-9]{1,18})\b')
"""The number of a message as debugpy writes it, first of all fields."""


class AttachAnswers(Layer):
    """One editor's connection until it has attached: the editor is the local program, the debugger is the peer.

    It lives as long as the connection, while streams come and go.
    """

    def __init__(self) -> None:
        self.is_debugpy = False
        """True while a stream leads to a debugger that is known to answer as debugpy does."""
        self._from_editor = MessageSplitter()
        self._from_debugger = MessageSplitter()
        self._initialize: Request | None = None
        self._attach: Request | None = None
        """The editor's `attach`, until it is answered."""
        self._answered: dict[int, Request] = {}
        """Requests that the editor has a response to and the debugger has not answered, by number."""
        self._is_early = False
        """Whether `initialize` was answered here."""
        self._has_initialized = False
        """Whether the editor has received `initialized`, and the debugger has not sent it."""
        self._is_configured = False
        """Whether the editor has sent `configurationDone`."""
        self._failure: Response | None = None
        """The failed response to `initialize` or `attach`."""
        self._last_seq = 1
        """Highest `seq` of the messages that the editor has received."""

    def __repr__(self) -> str:
        return f"<AttachAnswers {len(self._answered)} unconfirmed>"

    def start(self, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Begin with a stream; an `initialize` that has waited for it is answered."""
        self._from_debugger = MessageSplitter()
        return _to_local(self._answer_initialize())

    def receive_local(self, data: bytes, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Take bytes of the editor; return them for the debugger, and responses."""
        pieces = self._from_editor.feed(data)
        answers = b"".join(self._answer(request) for piece in pieces if (request := parse(piece.body, "request")))
        if self._from_editor.is_foreign:
            self.is_finished = True
        onward = b"".join(piece.raw for piece in pieces)
        return [*([ToPeer(onward)] if onward else []), *_to_local(answers), *self._rests()]

    def receive_peer(self, data: bytes, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Take bytes of the debugger; return those for the editor."""
        return [*_to_local(self.without_known(data)), *self._rests()]

    def without_known(self, data: bytes) -> bytes:
        """Return what the editor receives of messages: not those that it has received before."""
        return b"".join(map(self._checked, self._from_debugger.feed(data)))

    def receive_local_eof(self, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Pass the end on, after the part of a message that the editor has sent."""
        rest = self._from_editor.end()
        return [*([ToPeer(rest)] if rest else []), EndPeer()]

    def receive_peer_eof(self, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Pass the end on, after the part of a message that the debugger has sent."""
        return [*_to_local(self._from_debugger.end()), EndLocal()]

    def receive_peer_lost(self, now: float) -> list[Output]:
        """Pass the loss on, after the part of a message that the debugger has sent."""
        return [*_to_local(self._from_debugger.end()), *super().receive_peer_lost(now)]

    def _rests(self) -> list[Output]:
        """Return the incomplete messages held so far, if this layer is no longer needed."""
        if self._is_configured and not self._answered and not self._has_initialized:
            self.is_finished = True
        if not self.is_finished:
            return []
        rest = self._from_editor.end()
        return [*([ToPeer(rest)] if rest else []), *_to_local(self._from_debugger.end())]

    # From the editor:

    def _answer(self, request: Request) -> bytes:
        """Return the response to a request if it is known, else b""."""
        command = request["command"]
        if command == "initialize" and self._initialize is None:
            self._initialize = request
            return self._answer_initialize()
        if not (self._is_early and self._from_debugger.at_boundary):
            return b""
        if command == "attach":
            return self._answer_attach(request)
        if command == "setFunctionBreakpoints" and not arguments_of(request).get("breakpoints"):
            return self._respond(request, {"breakpoints": []})
        self._is_configured |= command == "configurationDone"
        return self._respond(request) if command in {"setExceptionBreakpoints", "configurationDone"} else b""

    def _answer_initialize(self) -> bytes:
        """Respond to an `initialize` that has arrived, if the capabilities are known."""
        if self._is_early or self._initialize is None or not self.is_debugpy:
            return b""
        self._is_early = True
        return self._respond(self._initialize, DEBUGPY_CAPABILITIES)

    def _answer_attach(self, request: Request) -> bytes:
        """Send what debugpy sends when it is ready for breakpoints; its adapter makes them wait until then."""
        if self._failure is not None:
            return self._as_failure_of(request, self._failure)
        self._attach, self._has_initialized = request, True
        return self._event("initialized")

    def _respond(self, request: Request, body: Body | None = None) -> bytes:
        self._answered[request["seq"]] = request
        response: Response = {
            "seq": self._last_seq,
            "type": "response",
            "request_seq": request["seq"],
            "success": True,
            "command": request["command"],
        }
        return encode({**response, "body": body} if body is not None else response)

    def _event(self, name: str, body: Body | None = None) -> bytes:
        event: Event = {"seq": self._last_seq, "type": "event", "event": name, "body": body or {}}
        return encode(event)

    # From the debugger:

    def _checked(self, piece: Piece) -> bytes:
        """Return what the editor receives in place of a message."""
        if found := _SEQ.match(piece.body):
            self._last_seq = max(self._last_seq, int(found[1]))
        if b'"response"' in piece.body and (response := parse(piece.body, "response")):
            return self._checked_response(response, piece.raw)
        if self._has_initialized and b'"initialized"' in piece.body and _is_initialized(piece.body):
            self._has_initialized = False
            return b""
        return piece.raw

    def _checked_response(self, response: Response, raw: bytes) -> bytes:
        request = self._answered.pop(response["request_seq"], None)
        if request is not None:
            return self._compared(request, response)
        if self._attach is not None and response["request_seq"] == self._attach["seq"]:
            self._attach = None
            self._note_failure(response)
        elif not self._is_early and self._initialize and response["request_seq"] == self._initialize["seq"]:
            self.is_finished = True  # the debugger's capabilities may be others
        return raw

    def _compared(self, request: Request, response: Response) -> bytes:
        """Return what the editor has to know about a response other than the one that it has received."""
        if response.get("success") is True:
            body = response.get("body")
            if request["command"] != "initialize" or body == DEBUGPY_CAPABILITIES:
                return b""
            found = body if isinstance(body, dict) else {}
            return self._event("capabilities", {"capabilities": dict.fromkeys(DEBUGPY_CAPABILITIES, False) | found})
        if request["command"] == "initialize":
            self._note_failure(response)
            return self._as_failure_of(self._attach, response) if self._attach else b""
        if self._failure is not None:
            return b""  # the editor knows that it has not attached
        reason = response.get("message") or "no reason given"
        text = f"relay-client: the debugger refused '{request['command']}': {reason}\n"
        return self._event("output", {"category": "important", "output": text})

    def _note_failure(self, response: Response) -> None:
        if response.get("success") is not True:
            self._failure, self._has_initialized = response, False

    def _as_failure_of(self, request: Request, response: Response) -> bytes:
        """Return a failed response as the response to another request, after which the editor expects no more."""
        self._attach = None
        self._has_initialized = False
        changed: Response = {**response, "request_seq": request["seq"], "command": request["command"]}
        return encode({**changed, "seq": self._last_seq})


def _is_initialized(body: bytes) -> bool:
    event = parse(body, "event")
    return event is not None and event["event"] == "initialized"


def _to_local(data: bytes) -> list[Output]:
    return [ToLocal(data)] if data else []
