"""Observes the messages between an editor and its debugger to find out where the process is stopped.

    debugger   stopped          it is stopped; the reason is known
    editor     stackTrace       of the stopped thread, from its top
    debugger   response         the top frame: file, line and function
    editor     continue, ...    it is running

Every byte is passed on immediately and unchanged. File names are those of the editor, because debugpy applies the
`pathMappings` of `attach`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from relay_core.dap.messages import Event, Response
from relay_core.dap.prefetch import RESUMING, arguments_of, parse
from relay_core.dap.splitter import MessageSplitter
from relay_core.layers.layer import Layer, Output

__all__ = ["ObservedStop", "StopObserver"]

_ENDS = frozenset({"continued", "exited", "terminated"})
_COMMANDS = tuple(f'"{command}"'.encode() for command in ("stackTrace", *sorted(RESUMING)))
_EVENTS = tuple(f'"{event}"'.encode() for event in ("stopped", *sorted(_ENDS)))


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
    """One editor's connection: the editor is the local program, the debugger is the peer.

    Args:
        on_change: Called with the stop, again once its place is known, and with None when the process resumes.
    """

    def __init__(self, on_change: Callable[[ObservedStop | None], None]) -> None:
        self._on_change = on_change
        self._from_editor = MessageSplitter()
        self._from_debugger = MessageSplitter()
        self._stop: ObservedStop | None = None
        self._pending: set[int] = set()
        """Numbers of the requests for the top of the stopped thread's stack."""

    def __repr__(self) -> str:
        return f"<StopObserver {self._stop}>"

    def receive_local(self, data: bytes, now: float) -> list[Output]:
        """Process bytes from the editor."""
        for piece in self._from_editor.feed(data):
            if any(command in piece.body for command in _COMMANDS) and (request := parse(piece.body, "request")):
                if request["command"] in RESUMING:
                    self._set(None)
                elif request["command"] == "stackTrace" and self._is_top(arguments_of(request)):
                    self._pending.add(request["seq"])
        if self._from_editor.is_foreign and self._from_debugger.is_untouched:
            self.is_finished = True  # this is not an editor's connection
        return super().receive_local(data, now)

    def receive_peer(self, data: bytes, now: float) -> list[Output]:
        """Process bytes from the debugger."""
        for piece in self._from_debugger.feed(data):
            if self._pending and b'"response"' in piece.body and (response := parse(piece.body, "response")):
                self._answered(response)
            elif any(event in piece.body for event in _EVENTS) and (event := parse(piece.body, "event")):
                self._happened(event)
        return super().receive_peer(data, now)

    def _is_top(self, arguments: object) -> bool:
        match arguments:
            case {"threadId": int(thread), **rest}:
                return self._stop is not None and thread == self._stop.thread and not rest.get("startFrame")
        return False

    def _happened(self, event: Event) -> None:
        if event["event"] in _ENDS:
            self._set(None)
        match event:
            case {"event": "stopped", "body": {"reason": str(reason), **rest}}:
                thread = rest.get("threadId")
                self._set(ObservedStop(reason, thread if isinstance(thread, int) else None))

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
