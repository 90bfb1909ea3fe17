"""Observes the messages between an editor and its debugger to find out where the process is stopped.

    debugger   stopped          it is stopped; the reason is known
    editor     stackTrace       of the stopped thread, from its top
    debugger   response         the top frame: file, line and function
    editor     continue, ...    it is running
    editor     setExceptionBreakpoints: whether a stop at an exception means that no code catches the exception

Every byte is passed on immediately and unchanged. Most stops end a step, and their place is not needed. The messages
that contain a stack are therefore parsed only when the place is needed. File names are those of the editor, because
debugpy applies the `pathMappings` of `attach`. The client observes its editors, and the agent observes the debuggers,
including prefetched requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from relay_core.dap import messages, prefetch
from relay_core.dap.prefetch import RESUMING
from relay_core.layers.layer import Layer, Output, ToLocal, ToPeer
from relay_core.layers.piece import MAX_PARSED, Piece

MAX_KEPT = 8
"""Maximum number of messages that are kept until the place is needed; a prefetched stop has two."""
MAX_EXCEPTION = 200
"""Maximum number of characters that are kept of an exception."""
_ENDS = frozenset({"continued", "exited", "terminated"})
_WITH_STACK = frozenset({"stackTrace", prefetch.PREFETCH_EVENT})
_FILTERS = "setExceptionBreakpoints"
_OF_EDITOR = RESUMING | {"stackTrace", _FILTERS}
_OF_DEBUGGER = _ENDS | _WITH_STACK | {"stopped"}


class Place(NamedTuple):
    """The top frame of a stopped thread."""

    file: str
    line: int
    function: str = ""


class ObservedStop:
    """A stop of one thread.

    Args:
        reason: As the debugger reports it.
        thread: The id of the thread.
        place: Where the thread is stopped, if that is known.
        uncaught: The exception at which the thread has stopped, if no code catches it; else "".
    """

    def __init__(self, reason: str, thread: int | None = None, place: Place | None = None, uncaught: str = "") -> None:
        self.reason = reason
        self.uncaught = uncaught
        self._thread = thread
        self._place = place
        self._pending: set[int] = set()
        """Numbers of the requests for the top of the thread's stack."""
        self._kept: list[Piece] = []
        """Messages that have not been parsed."""

    @property
    def place(self) -> Place | None:
        """Where the thread is stopped; None until the editor has received the stack."""
        kept, self._kept = self._kept, []
        for piece in kept:
            if event := piece.event():
                self._prefetched(event.get("body"))
            elif response := piece.response():
                self._answered(response)
        return self._place

    def found(self, place: Place) -> None:
        """Take the place from the process itself, if no editor has requested it."""
        self._place = self.place or place

    def requested(self, request: messages.Request) -> None:
        """Note a request for the stack of the stopped thread, from its top."""
        match messages.arguments_of(request):
            case {"threadId": int(thread), **rest} if thread == self._thread and not rest.get("startFrame"):
                self._pending.add(request["seq"])

    def received(self, piece: Piece) -> bool:
        """Take a message that may contain the stack; return True if the place has to be read again."""
        # Responses do not name the request's arguments, so without a noted request they are of no use.
        if piece.type == "response" and not self._pending:
            return False
        self._kept.append(piece)
        if len(self._kept) < MAX_KEPT:
            return len(self._kept) == 1
        return self.place is not None

    def _prefetched(self, body: object) -> None:
        """Take the requests and responses in a prefetch event."""
        match body:
            case {"requested": list(requests), "responses": list(responses)}:
                for request in requests:
                    if messages.is_message(request, "request") and request["command"] == "stackTrace":
                        self.requested(request)
                for response in responses:
                    if messages.is_message(response, "response"):
                        self._answered(response)

    def _answered(self, response: messages.Response) -> None:
        if response["request_seq"] not in self._pending:
            return
        self._pending.discard(response["request_seq"])
        match response.get("body"):
            case {"stackFrames": [{"line": int(line), "source": {"path": str(file)}, **rest}, *_]}:
                # The first answer counts: later requests may be for other parts of the same stack.
                self._place = self._place or Place(file, line, str(rest.get("name", "")))


class StopObserver(Layer):
    """One editor's connection.

    Args:
        on_change: Called with the stop, again when the place of the stop may be known, and with None when the process
            resumes.
        is_editor_local: Whether the editor is the local program and the debugger the peer, or the other way round.
    """

    longest_local = longest_peer = MAX_PARSED

    def __init__(self, on_change: Callable[[ObservedStop | None], None], *, is_editor_local: bool = True) -> None:
        self.local_names = _OF_EDITOR if is_editor_local else _OF_DEBUGGER
        self.peer_names = _OF_DEBUGGER if is_editor_local else _OF_EDITOR
        self._on_change = on_change
        self._is_editor_local = is_editor_local
        self._stop: ObservedStop | None = None
        self._stops_only_at_uncaught = False

    def receive_local(self, piece: ToPeer, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Take a message from the local program."""
        self._take(piece, is_of_editor=self._is_editor_local)
        self.is_finished |= piece.is_foreign  # then this is not a debug session
        return [piece]

    def receive_peer(self, piece: ToLocal, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Take a message from the peer."""
        self._take(piece, is_of_editor=not self._is_editor_local)
        return [piece]

    def _take(self, piece: Piece, *, is_of_editor: bool) -> None:
        if is_of_editor:
            if (self._stop is not None or piece.name == _FILTERS) and (request := piece.request()):
                self._editor_sent(request)
        elif piece.name == "stopped" and (event := piece.event()):
            self._stopped(event)
        elif self._stop is not None:
            self._debugger_sent(self._stop, piece)

    def _editor_sent(self, request: messages.Request) -> None:
        if request["command"] == _FILTERS:
            self._stops_only_at_uncaught = messages.stops_only_at_uncaught(messages.arguments_of(request))
        elif request["command"] in RESUMING:
            self._set(None)
        elif request["command"] == "stackTrace" and self._stop is not None:
            self._stop.requested(request)

    def _stopped(self, event: messages.Event) -> None:
        match event:
            case {"body": {"reason": str(reason), **rest}}:
                thread = rest.get("threadId")
                found = messages.exception_of(event["body"]) if self._stops_only_at_uncaught else None
                uncaught = str(found)[:MAX_EXCEPTION] if found else ""
                self._set(ObservedStop(reason, thread if isinstance(thread, int) else None, uncaught=uncaught))

    def _debugger_sent(self, stop: ObservedStop, piece: Piece) -> None:
        name = piece.name
        if name in _ENDS and piece.event():
            self._set(None)
        elif name in _WITH_STACK and stop.received(piece):
            self._on_change(stop)

    def _set(self, stop: ObservedStop | None) -> None:
        self._stop = stop
        self._on_change(stop)
