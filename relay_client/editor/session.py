"""The layer next to an editor: it shows what relay-client knows, and answers requests that no job can answer.

    WAITING    no debugger has answered `initialize`: lines in the debug console show what is awaited, and why
    ANSWERED   the debugger has answered; lines show when the tunnel is interrupted and restored
    CONCLUDED  the editor has received the reason for the end, with `terminated` or in a failed `initialize`

Only the messages listed below are changed; the bytes of a program that does not use DAP pass unchanged. The local
program is the editor, or debugpy's adapter next to an editor that is listening. The adapter passes events on only after
`attach` has succeeded, so an editor that is listening is shown nothing before that, and its state is ANSWERED from the
beginning.

    initialize                  answered with a failure if the job cannot be reached and waiting cannot help
    attach, setBreakpoints      `attaching`: mappings, children, who holds the job, breakpoints that are not set
    setBreakpoints              formats in the messages of logpoints become expressions (`compare.console`)
    evaluate                    `@stats x` becomes an expression; other commands with @ are passed to `on_question`
    pause                       passed on; a line is shown if it has no effect in time
    disconnect, terminate       `ending`: only detach by default; answered here if no debugger is connected
    stopped                     the message of an exception moves to where it does not hide the name of the session
    terminated                  `ending`: delayed until the agent has announced how the job has ended, which it does
                                not do for a child process
"""

from __future__ import annotations

import enum

from relay_client.compare.console import OnQuestion, command_of, with_formats, with_statistics
from relay_client.editor.attaching import Attaching, FindRoot, OnSource
from relay_client.editor.ending import DisconnectGuard, SessionEnd
from relay_client.editor.messages import CHILD_HINT, IMPORTANT, JobView
from relay_client.editor.notices import (
    InterruptionNotices,
    Notices,
    Outbox,
    PauseNotices,
    PeerTimeoutNotices,
    WaitingNotices,
)
from relay_core.dap.messages import Event, Request, arguments_of, with_short_description
from relay_core.layers.layer import EndLocal, EndPeer, Layer, Output, ToLocal, ToPeer
from relay_core.layers.piece import MAX_PARSED

_COMMANDS = frozenset({"initialize", "attach", "disconnect", "terminate", "setBreakpoints"})
"""Requests whose responses are read."""
_READ = _COMMANDS | {"stopped", "continued", "terminated"}


class State(enum.Enum):
    """What the editor has received."""

    WAITING = "waiting"
    ANSWERED = "answered"
    CONCLUDED = "concluded"


class EditorSession(Layer):
    """One editor's connection: the editor is the local program, the debugger is the peer.

    It exists as long as the connection, which may use several streams one after another.

    Args:
        view: What is known about the job.
        now: When the connection was accepted.
        allow_terminate: Whether the editor may terminate the job.
        listens: Whether the editor is listening and the job has connected to its adapter.
        find_root: Returns the local directory that contains the job's script.
        on_source: Called with each file that has breakpoints, and again after the job's code has been replaced.
        on_question: Called with each command from the debug console that the job does not answer, such as `@all x`.
    """

    longest_local = longest_peer = MAX_PARSED
    local_names = _COMMANDS | {"evaluate", "pause"}

    def __init__(
        self,
        view: JobView,
        now: float,
        *,
        allow_terminate: bool = False,
        listens: bool = False,
        find_root: FindRoot = lambda _folder, _script: "",
        on_source: OnSource = lambda _local, _remote: None,
        on_question: OnQuestion = lambda _request, _evaluation: None,
    ) -> None:
        self.has_stream = False
        """True while a stream leads to the debugger."""
        self._view = view
        self._on_question = on_question
        self._listens = listens
        self._state = State.ANSWERED if listens else State.WAITING
        self._is_inside = False
        """Whether the editor has received only part of a message, so that nothing can be inserted after it."""
        self._is_stopped = False
        self._initialize: Request | None = None
        self._refusal = ""
        """The reason to send when `initialize` fails; "" if it will not fail."""
        self.outbox = Outbox()
        """Messages of the owner, such as answers to `on_question`, which are sent with the next bytes or `tick`."""
        self.attach = Attaching(self.outbox, find_root, on_source)
        self._disconnect_guard = DisconnectGuard(self.outbox, allow_terminate=allow_terminate)
        self._end = SessionEnd(self.outbox)
        self._waiting = WaitingNotices(now)
        self._interruption = InterruptionNotices()
        self._peer_timeout = PeerTimeoutNotices()
        self._pause = PauseNotices()

    @property
    def is_editor(self) -> bool:
        """True if the local program has sent `initialize`."""
        return self._initialize is not None

    @property
    def has_left(self) -> bool:
        """True if the editor has requested the end of the session, or has closed its connection."""
        return self._disconnect_guard.has_begun

    # Called by the owner; messages that these methods queue are sent with the next bytes or `tick`:

    def wait_for(self, reason: str, now: float) -> None:
        """Record why the debugger has not answered yet."""
        self._waiting.set_reason(reason, now)

    def update(self, view: JobView, now: float) -> None:
        """Handle a change in what is known about the job."""
        before, self._view = self._view, view
        self.outbox.show_all([*self._interruption.update(view, now), *self._peer_timeout.update(view, now)])
        if view.pushes > before.pushes and self.has_stream:
            self.attach.compare_again()
        if view.ending is not None and view.ending != before.ending and self._is_open:
            self._end.announced(is_final=view.ending.is_final, now=now)

    def source_compared(self, path: str, *, is_different: bool) -> None:
        """Show that a file differs from the job's file, or no longer differs from it."""
        self.attach.source_compared(path, self._view, is_different=is_different)

    def show_refusal(self, text: str) -> None:
        """Show what the debugged process was not allowed to do."""
        self.outbox.show(text, IMPORTANT)

    def conclude(self, reason: str, *, may_return: bool) -> None:
        """Queue the last messages for the editor, with the reason; the owner then closes the connection.

        Args:
            reason: One sentence.
            may_return: Whether the editor should attach again, and wait for the job.
        """
        self.has_stream = False
        if self._is_inside or self._state is State.CONCLUDED:
            return
        if self._initialize is None:
            self._refusal = reason  # the first request has not arrived yet
            return
        if self._state is State.WAITING:
            self._end.refuse(self._initialize, self._view, reason)
        elif not self._disconnect_guard.has_begun:
            client = self._returning_client if may_return and self._view.ending is None else None
            self._end.show(self._view, reason, client)
            self._end.terminate(client)
        self._disconnect_guard.answer()
        self._state = State.CONCLUDED

    def start(self, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Begin with the messages that were queued between two streams."""
        return self.outbox.take()

    def receive_local(self, piece: ToPeer, now: float) -> list[Output]:
        """Take a message from the editor."""
        self.is_finished |= piece.is_foreign
        request = piece.request()
        if request and request["command"] == "pause":
            self._pause.requested(now)
        passed = self._received(request, piece) if request else [piece]
        ends = [EndLocal(), EndPeer()] if self._disconnect_guard.has_begun and not self.has_stream else []
        return [*passed, *self.outbox.take(), *ends]

    def receive_local_eof(self, now: float) -> list[Output]:
        """Pass EOF on, and record that the editor has left."""
        self._disconnect_guard.has_begun = True
        return super().receive_local_eof(now)

    def receive_peer(self, piece: ToLocal, now: float) -> list[Output]:
        """Take a message from the debugger."""
        self._is_inside = not piece.can_be_followed
        self.outbox.note(piece.seq)
        passed: list[Output] = self._read(piece, now) if piece.name in _READ else [piece]
        if self.outbox or self._end.deadline is not None:
            passed += [*self.outbox.take(), *self._due_end(now)]
        return passed

    def receive_peer_eof(self, now: float) -> list[Output]:
        """Pass EOF on; if the editor expects the session to continue, hold EOF back until the reason can be shown."""
        if self._is_inside or not self._is_open:
            return [*self._end.release(), EndLocal()]
        self._end.hold(EndLocal(), self._view, now)
        return self._due_end(now)

    def receive_peer_lost(self, now: float) -> list[Output]:
        """Pass the loss on: the owner opens another stream, or calls `conclude`."""
        self.has_stream = False
        conclusion = self._conclusion() if self._end.is_held and not self._is_inside else []
        return [*conclusion, *super().receive_peer_lost(now)]

    def next_deadline(self) -> float | None:
        """Return when to show that the connection is waiting or interrupted, or when to stop delaying its end."""
        deadlines = [self._end.deadline, *(notices.next_deadline for notices in self._notices)]
        return min((each for each in deadlines if each is not None), default=None)

    def tick(self, now: float) -> list[Output]:
        """Show the lines that are due."""
        for notices in self._notices:
            self.outbox.show_all(notices.due(self._view, now))
        return [*self.outbox.take(), *self._due_end(now)]

    def _received(self, request: Request, piece: ToPeer) -> list[Output]:
        """Handle a request; return what the debugger receives."""
        changed = with_formats(with_statistics(request))
        match request["command"]:
            case "initialize":
                self._initialize = request
                if self._refusal:
                    self._end.refuse(request, self._view, self._refusal)
                    self._disconnect_guard.has_begun, self._state = True, State.CONCLUDED
            case "attach":
                changed = self.attach.requested(request, arguments_of(self._initialize or {}), self._view)
            case "setBreakpoints":
                self.attach.breakpoints_requested(request, self._view)
            case "disconnect" | "terminate":
                return self._disconnect_guard.requested(request, piece, has_stream=self.has_stream)
            case "evaluate" if (question := command_of(changed)) is not None:
                self._on_question(request, question)
                return []
        return [piece if changed is request else ToPeer.of(changed)]

    def _read(self, piece: ToLocal, now: float) -> list[Output]:
        """Return what the editor receives in place of a message."""
        if self._is_held(piece, now):
            return []
        if piece.name == "terminated" and self._is_stopped and self._is_open and self.attach.is_child:
            pid = (self.attach.sent or {}).get("subProcessId")
            self.outbox.show(f"the child process {pid} ended while it was stopped. hint: {CHILD_HINT}", IMPORTANT)
            return [*self.outbox.take(), piece]
        if piece.name in {"stopped", "continued"}:
            self._is_stopped = piece.name == "stopped"
            if self._is_stopped:
                self._pause.ended()
        if piece.name == "stopped" and (event := piece.event()) is not None:
            return [_with_short_description(piece, event)]
        if (response := piece.response()) is None:
            return [piece]
        if self._disconnect_guard.responded(response["request_seq"]) or self.attach.responded(response, self._view):
            return []
        if self._state is State.WAITING and self._initialize and response["request_seq"] == self._initialize["seq"]:
            self._state = State.ANSWERED
        return [piece]

    @property
    def _notices(self) -> list[Notices]:
        """The notices for the current state, such as why the first response is missing."""
        is_waiting = self._state is State.WAITING and self._initialize is not None
        waiting: list[Notices] = [self._waiting] if is_waiting else []
        return [*waiting, self._peer_timeout, *([self._interruption, self._pause] if self._is_open else [])]

    @property
    def _is_open(self) -> bool:
        """True if the editor expects the session to continue."""
        return self.is_editor and self._state is State.ANSWERED and not self._disconnect_guard.has_begun

    def _is_held(self, piece: ToLocal, now: float) -> bool:
        """Hold `terminated` back if its reason will be announced; return True if it is held back."""
        has_reason = self._is_open and self._view.announces_endings and not self.attach.is_child
        is_end = has_reason and piece.name == "terminated" and piece.event() is not None
        if is_end:
            self._end.hold(piece, self._view, now)
        return is_end

    def _due_end(self, now: float) -> list[Output]:
        """Conclude the session if that is due."""
        return self._conclusion() if self._end.is_due(self._view, now) and not self._is_inside else []

    def _conclusion(self) -> list[Output]:
        """Return the reason, and `terminated`, which comes from the debugger or is sent in its place."""
        if self._is_open:
            self._end.conclude(self._view, self._returning_client)
        self._state = State.CONCLUDED
        return [*self.outbox.take(), *self._end.release()]

    @property
    def _returning_client(self) -> object:
        """The editor's `clientID`; None if the editor must not attach again, or if its adapter makes that decision."""
        return None if self.attach.is_child or self._listens else arguments_of(self._initialize or {}).get("clientID")


def _with_short_description(piece: ToLocal, stopped: Event) -> ToLocal:
    body = stopped.get("body")
    if not isinstance(body, dict) or (changed := with_short_description(body)) is body:
        return piece
    return ToLocal.of({**stopped, "body": changed})
