"""Observes the messages between an editor and its debugger to find out where the process is stopped.

    debugger   stopped          it is stopped; the reason is known
    editor     stackTrace       of the stopped thread, from its top
    debugger   response         the top frame: file, line and function
    editor     continue, ...    it is running

Every byte is passed on immediately and unchanged. File names are those of the editor, because debugpy applies the
`pathMappings` of `attach`. The client observes its editors, and the agent the debuggers, prefetched requests included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from relay_core.dap.messages import Event, Request, Response
from relay_core.dap.prefetch import PREFETCH_EVENT, RESUMING, arguments_of, is_message
from relay_core.layers.layer import Layer, Output, ToLocal, ToPeer
from relay_core.layers.piece import MAX_PARSED, Piece

__all__ = ["ObservedStop", "StopObserver"]

_ENDS = frozenset({"continued", "exited", "terminated"})
_EVENTS = _ENDS | {"stopped", PREFETCH_EVENT}


@dataclass(frozen=True)
class ObservedStop:
    """A stop of one thread."""

    reason: str
    thread: int | None = None
    file: str = ""
    """"" until the editor has received the stack."""
    line: int | None = None
    function: str = ""


class StopObserver(Layer):
    """One editor's connection.

    Args:
        on_change: Called with the stop, again once its place is known, and with None when the process resumes.
        is_editor_local: Whether the editor is the local program and the debugger the peer, or the other way round.
    """

    longest_local = longest_peer = MAX_PARSED

    def __init__(self, on_change: Callable[[ObservedStop | None], None], *, is_editor_local: bool = True) -> None:
        self._on_change = on_change
        self._is_editor_local = is_editor_local
        self._stop: ObservedStop | None = None
        self._pending: set[int] = set()
        """Numbers of the requests for the top of the stopped thread's stack."""

    def __repr__(self) -> str:
        return f"<StopObserver {self._stop}>"

    def receive_local(self, piece: ToPeer, now: float) -> list[Output]:
        """Take a message of the local program."""
        self._take(piece, is_of_editor=self._is_editor_local)
        self.is_finished |= piece.is_foreign  # then this is not a debug session
        return super().receive_local(piece, now)

    def receive_peer(self, piece: ToLocal, now: float) -> list[Output]:
        """Take a message of the peer."""
        self._take(piece, is_of_editor=not self._is_editor_local)
        return super().receive_peer(piece, now)

    def _take(self, piece: Piece, *, is_of_editor: bool) -> None:
        if is_of_editor:
            self._editor_sent(piece)
        elif self._pending and piece.head.type == "response" and (response := piece.response()):
            self._answered(response)
        elif piece.head.name in _EVENTS and (event := piece.event()):
            self._happened(event)

    def _editor_sent(self, piece: Piece) -> None:
        if (request := piece.request()) is not None:
            if request["command"] in RESUMING:
                self._set(None)
            self._requested(request)

    def _requested(self, request: Request) -> None:
        if request["command"] == "stackTrace" and self._is_top(arguments_of(request)):
            self._pending.add(request["seq"])

    def _is_top(self, arguments: object) -> bool:
        match arguments:
            case {"threadId": int(thread), **rest}:
                return self._stop is not None and thread == self._stop.thread and not rest.get("startFrame")
        return False

    def _happened(self, event: Event) -> None:
        if event["event"] in _ENDS:
            self._set(None)
        if event["event"] == PREFETCH_EVENT:
            self._prefetched(event.get("body"))
        match event:
            case {"event": "stopped", "body": {"reason": str(reason), **rest}}:
                thread = rest.get("threadId")
                self._set(ObservedStop(reason, thread if isinstance(thread, int) else None))
                self._prefetched(rest.get(PREFETCH_EVENT))

    def _prefetched(self, body: object) -> None:
        """Take the requests and responses of a process that prefetches."""
        match body:
            case {"asked": list(requests), "answered": list(responses)}:
                for request in requests:
                    if is_message(request, "request"):
                        self._requested(request)
                for response in responses:
                    if is_message(response, "response"):
                        self._answered(response)

    def _answered(self, response: Response) -> None:
        if response["request_seq"] not in self._pending:
            return
        self._pending.discard(response["request_seq"])
        match response.get("body"):
            case {"stackFrames": [{"line": int(line), "source": {"path": str(file)}, **rest}, *_]}:
                if self._stop is not None and not self._stop.file:
                    stop = replace(self._stop, file=file, line=line, function=str(rest.get("name", "")))
                    self._stop = stop
                    self._on_change(stop)

    def _set(self, stop: ObservedStop | None) -> None:
        self._pending.clear()
        if stop != self._stop:
            self._stop = stop
            self._on_change(stop)
