"""A layer that answers those requests of an attaching editor whose responses are known before debugpy sends them.

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

As a result, an editor needs two round trips to attach, one for the responses to `setBreakpoints` and one for `stopped`,
instead of four or more. Every request reaches debugpy, in the editor's order, and debugpy's adapter handles requests in
order. A response that differs from the expected one is reported when it arrives:

    initialize, other capabilities      `capabilities` event
    initialize, a failure               this failure becomes the response to `attach`
    another failure                     an `output` event

Why here and not at the agent, where stops are prefetched: the round trip that is saved is the one between the two. With
Azure-like delays, attaching takes 325 ms until the job has stopped, 551 ms without prefetching and these answers, and
681 ms for a direct session over a path as long (`make bench BENCH="--only attach"`).

Which requests are answered: those whose response contains nothing about the job. `setBreakpoints` is not among them:
its response contains the lines to which debugpy has moved the breakpoints. Nor is `attach`: its response is the only
place in which a refusal can end the session in an orderly way, so it is kept for a failure of `initialize`, which the
editor believes to have succeeded.

Why every request still reaches debugpy: the alternative, to send only what debugpy needs and to invent the rest, would
have to know its order of states. As it is, a wrong guess costs one correcting message; debugpy's state is never hidden
from the editor.

What is ugly: the capabilities are a copy of debugpy's, and data breakpoints, which relay-agent adds. The copy is
compared with the real ones at each attach, and a difference switches off what debugpy does not announce. A debugger
that is not known to be debugpy gets no early answer.
The messages of this layer repeat the last `seq` that the debugger has used: with numbers of their own, all later
messages would have to be parsed and renumbered.
"""

from __future__ import annotations

from relay_client.editor.messages import IMPORTANT
from relay_client.editor.notices import Outbox
from relay_core.dap.messages import Body, Request, Response, arguments_of, reason_of
from relay_core.layers.layer import Layer, Output, ToLocal, ToPeer
from relay_core.layers.piece import MAX_PARSED

# The response of debugpy 1.8.14 and later to `initialize`, without what `ResponseCache` removes.

_SUPPORTED = (
    "ClipboardContext",
    "CompletionsRequest",
    "ConditionalBreakpoints",
    "ConfigurationDoneRequest",
    "DebuggerProperties",
    "EvaluateForHovers",
    "ExceptionInfoRequest",
    "ExceptionOptions",
    "FunctionBreakpoints",
    "GotoTargetsRequest",
    "HitConditionalBreakpoints",
    "LogPoints",
    "ModulesRequest",
    "SetExpression",
    "SetVariable",
    "StepInTargetsRequest",
    "TerminateDebuggee",
    "TerminateRequest",
    "ValueFormattingOptions",
)

_FILTERS = (
    ("raised", "Raised Exceptions", "Break whenever any exception is raised."),
    ("uncaught", "Uncaught Exceptions", "Break when the process is exiting due to unhandled exception."),
    ("userUnhandled", "User Uncaught Exceptions", "Break when exception escapes into library code."),
)

DEBUGPY_CAPABILITIES: Body = {
    **{f"supports{name}": True for name in _SUPPORTED},
    "exceptionBreakpointFilters": [
        {"filter": name, "label": label, "default": name == "uncaught", "description": description}
        for name, label, description in _FILTERS
    ],
}
"""The body of the response; it depends neither on the editor nor on the program."""
CAPABILITIES: Body = {**DEBUGPY_CAPABILITIES, "supportsDataBreakpoints": True}
"""What relay-agent adds to debugpy in the job, and debugpy's adapter does not know."""


class AttachAnswers(Layer):
    """One editor's connection until it has attached: the editor is the local program, the debugger is the peer.

    It exists as long as the connection, which may use several streams one after another.
    """

    longest_local = longest_peer = MAX_PARSED

    def __init__(self) -> None:
        self.is_debugpy = False
        """True while a stream leads to a debugger that is known to answer as debugpy does."""
        self._initialize: Request | None = None
        self._attach: Request | None = None
        """The editor's `attach`, until it is answered."""
        self._answered: dict[int, Request] = {}
        """Requests, by number, that were answered here and that the debugger has not answered yet."""
        self._is_early = False
        """Whether `initialize` was answered here."""
        self._has_initialized = False
        """Whether the editor has received `initialized` although the debugger has not sent it yet."""
        self._is_configured = False
        """Whether the editor has sent `configurationDone`."""
        self._failure: Response | None = None
        """The failed response to `initialize` or `attach`."""
        self._outbox = Outbox()

    def start(self, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Begin to use a stream; answer an `initialize` that has been waiting for the stream."""
        self._answer_initialize()
        return self._outbox.take()

    def receive_local(self, piece: ToPeer, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Take a message from the editor; return it for the debugger, and the response to it if that is known."""
        self.is_finished |= piece.is_foreign
        if request := piece.request():
            self._answer(request)
        self._finish_if_done()
        return [piece, *self._outbox.take()]

    def receive_peer(self, piece: ToLocal, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Take a message from the debugger; return what the editor receives in its place."""
        self._outbox.note(piece.seq)
        passed: list[Output] = [piece]
        if piece.type == "response" and (response := piece.response()):
            passed = [] if self._responded(response) else [piece]
        elif self._has_initialized and piece.type == "event" and piece.name == "initialized":
            self._has_initialized, passed = False, []
        self._finish_if_done()
        return [*passed, *self._outbox.take()]

    def _finish_if_done(self) -> None:
        if self._is_configured and not self._answered and not self._has_initialized:
            self.is_finished = True

    # From the editor:

    def _answer(self, request: Request) -> None:
        """Answer a request if its response is known."""
        match request["command"]:
            case "initialize" if self._initialize is None:
                self._initialize = request
                self._answer_initialize()
            case _ if not self._is_early:
                return
            case "attach" if self._failure is not None:
                self._fail(request, self._failure)
            case "attach":  # debugpy's adapter delays breakpoints until it is ready for them
                self._attach, self._has_initialized = request, True
                self._outbox.event("initialized")
            case "setFunctionBreakpoints" | "setDataBreakpoints" if not arguments_of(request).get("breakpoints"):
                self._respond(request, {"breakpoints": []})
            case "setExceptionBreakpoints" | "configurationDone" as command:
                self._is_configured |= command == "configurationDone"
                self._respond(request)

    def _answer_initialize(self) -> None:
        """Respond to an `initialize` that has arrived, if the capabilities are known."""
        if self._initialize is not None and self.is_debugpy and not self._is_early:
            self._is_early = True
            self._respond(self._initialize, CAPABILITIES)

    def _respond(self, request: Request, body: Body | None = None) -> None:
        self._answered[request["seq"]] = request
        self._outbox.answer(request, body)

    # From the debugger:

    def _responded(self, response: Response) -> bool:
        """Compare a response with the one that the editor has received already; return False if it has none."""
        request = self._answered.pop(response["request_seq"], None)
        if request is not None:
            self._compare(request, response)
            return True
        if self._attach is not None and response["request_seq"] == self._attach["seq"]:
            self._attach = None
            self._note_failure(response)
        elif not self._is_early and self._initialize and response["request_seq"] == self._initialize["seq"]:
            self.is_finished = True  # the debugger's capabilities may differ
        return False

    def _compare(self, request: Request, response: Response) -> None:
        """Inform the editor if the debugger's response differs from the one that the editor has received."""
        is_initialize = request["command"] == "initialize"
        if response.get("success") is True:
            body = response.get("body")
            if is_initialize and body != DEBUGPY_CAPABILITIES:
                found = body if isinstance(body, dict) else {}
                capabilities = dict.fromkeys(DEBUGPY_CAPABILITIES, False) | found
                self._outbox.event("capabilities", {"capabilities": capabilities})
        elif is_initialize:
            self._note_failure(response)
            if self._attach:
                self._fail(self._attach, response)
        elif self._failure is None:  # otherwise, the editor knows that it has not attached
            self._outbox.show(f"the debugger refused '{request['command']}': {reason_of(response)}", IMPORTANT)

    def _note_failure(self, response: Response) -> None:
        if response.get("success") is not True:
            self._failure, self._has_initialized = response, False

    def _fail(self, request: Request, response: Response) -> None:
        """Answer with the failed response to another request; the editor then expects no more messages."""
        self._attach = None
        self._has_initialized = False
        self._outbox.send({**response, "request_seq": request["seq"], "command": request["command"]})
