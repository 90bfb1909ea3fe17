"""The layer next to an editor: it shows the editor what relay-client knows, and answers requests when no job can.

    WAITING    no debugger has answered `initialize`: lines in the debug console show what it waits for, and why
    ANSWERED   the debugger answers; lines show when the tunnel is interrupted and restored
    CONCLUDED  the editor has received `terminated`, with the reason before it

Only whole messages are added, between two messages of the debugger. Everything but the messages named here passes
unchanged, and so does a connection that is not DAP.

    initialize    failed response if the job cannot be reached and waiting cannot help
    attach        gets the `pathMappings` that fit the job, and `subProcess` from editors that can follow children; the
    response names the holder if another debugger is attached
    setBreakpoints  the response is followed by a line if breakpoints were not set
    disconnect    never ends the job (`terminateDebuggee` is removed); answered here while no debugger is connected
    terminate     becomes a `disconnect`
    terminated    delayed up to `END_PATIENCE` until the agent has announced how the job has ended
"""

from __future__ import annotations

import enum

from relay_client.editor.attaching import Attaching, OnSource
from relay_client.editor.detach_only import harmless
from relay_client.editor.job import JobView
from relay_client.editor.lines import InterruptionLines, WaitingLines
from relay_client.editor.mappings import FindRoot
from relay_client.editor.messages import (
    CONSOLE,
    IMPORTANT,
)
from relay_client.editor.outbox import Outbox
from relay_client.editor.sentences import GUARDED, debugger_ended_text, different_text, ended_text, exit_code
from relay_core.dap.messages import Request
from relay_core.dap.prefetch import arguments_of
from relay_core.layers.layer import EndLocal, EndPeer, Layer, Output, ToLocal, ToPeer
from relay_core.layers.piece import MAX_PARSED

__all__ = ["EditorSession"]

END_PATIENCE = 1.0
"""Seconds for the announcement of how a job has ended; the editor waits meanwhile."""
EXIT_PATIENCE = 5.0
"""Seconds for the status of a process that is announced as exiting."""
RESTARTING_CLIENTS = frozenset({"vscode", "neovim"})
"""Editors that attach again when `terminated` has `restart`; others would report a session that has failed."""
_COMMANDS = frozenset({"initialize", "attach", "disconnect", "terminate", "setBreakpoints"})
"""Requests whose responses are read."""


class State(enum.Enum):
    """What the editor has received."""

    WAITING = "waiting"
    ANSWERED = "answered"
    CONCLUDED = "concluded"


class EditorSession(Layer):
    """One editor's connection: the editor is the local program, the debugger is the peer.

    It lives as long as the connection, while streams come and go.

    Args:
        view: What is known about the job.
        now: When the connection was accepted.
        allow_terminate: Whether the editor may end the job.
        find_root: Finds the job's script on this machine.
        on_source: Called once with each file that has breakpoints.
    """

    longest_local = longest_peer = MAX_PARSED

    def __init__(
        self,
        view: JobView,
        now: float,
        *,
        allow_terminate: bool = False,
        find_root: FindRoot = lambda _folder, _script: "",
        on_source: OnSource = lambda _local, _remote: None,
    ) -> None:
        self.has_stream = False
        """True while a stream leads to the debugger."""
        self._view = view
        self._allow_terminate = allow_terminate
        self._attach = Attaching(find_root, on_source)
        self._state = State.WAITING
        self._is_inside = False
        """Whether the editor has received part of a message, after which nothing can be added."""
        self._initialize: Request | None = None
        self._refusal = ""
        """The reason why `initialize` will fail."""
        self._dropped: set[int] = set()
        """Numbers of requests whose responses the editor has already received."""
        self._is_leaving = False
        """True if the editor has requested the end of the session."""
        self._farewell: Request | None = None
        """The editor's request to end the session, until the debugger has answered it."""
        self._outbox = Outbox()
        self._has_different = False
        """True if the user was notified of a differing file; one notification is enough."""
        self._waiting = WaitingLines(now)
        self._interruption = InterruptionLines()
        self._end: list[Output] = []
        """The debugger's `terminated`, and its EOF, until the reason is known."""
        self._conclude_at: float | None = None

    def __repr__(self) -> str:
        return f"<EditorSession {self._state.value}{'' if self.has_stream else ', no stream'}>"

    @property
    def is_editor(self) -> bool:
        """True if the local program has sent a DAP request."""
        return self._initialize is not None

    @property
    def has_left(self) -> bool:
        """True if the editor has requested the end of the session."""
        return self._is_leaving

    # Called by the owner; messages that these methods queue are sent with the next bytes or `tick`:

    def wait_for(self, reason: str, now: float, *, must_act: bool = False) -> None:
        """Set why the debugger has not answered yet; `must_act` is True if only the user can change that."""
        self._waiting.set_reason(reason, now, must_act=must_act)

    def update(self, view: JobView, now: float) -> None:
        """Handle a change of what is known about the job."""
        before, self._view = self._view, view
        self._outbox.show_all(self._interruption.update(view, now))
        if view.ending is not None and view.ending != before.ending and self._is_open:
            if not view.ending.is_final:
                self._conclude_at = now + EXIT_PATIENCE if self._end else None
            elif self._conclude_at is None:
                self._conclude_at = now + END_PATIENCE  # the debugger's own end should arrive first

    def source_differs(self, path: str) -> None:
        """Show that a file differs from the one on the node."""
        self._outbox.show(different_text(self._view, path), CONSOLE if self._has_different else IMPORTANT)
        self._has_different = True

    def conclude(self, reason: str, *, may_return: bool) -> None:
        """Queue the last messages for the editor, with the reason; the owner then ends the connection.

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
            self._refuse(self._initialize, reason)
        elif not self._is_leaving:
            self._show_end(reason, may_return=may_return and self._view.ending is None)
        if self._farewell is not None:
            self._outbox.succeed(self._farewell)
        self._state = State.CONCLUDED

    # As a layer:

    def start(self, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Begin with the messages that were queued between two streams."""
        return self._flush()

    def receive_local(self, piece: ToPeer, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Take a message of the editor."""
        self.is_finished |= piece.is_foreign
        request = piece.request()
        outputs: list[Output] = [*(self._received(request, piece) if request else [piece]), *self._flush()]
        if self._is_leaving and not self.has_stream:
            outputs += [EndLocal(), EndPeer()]
        return outputs

    def receive_local_eof(self, now: float) -> list[Output]:
        """Pass the end on."""
        self._is_leaving = True
        return super().receive_local_eof(now)

    def receive_peer(self, piece: ToLocal, now: float) -> list[Output]:
        """Take a message of the debugger."""
        self._is_inside = not piece.can_be_followed
        self._outbox.note(piece.head.seq)
        if piece.head.name == "terminated" and self._delays_end(piece):
            self._end.append(piece)
            self._conclude_at = now + (END_PATIENCE if self._view.ending is None else EXIT_PATIENCE)
            return [*self._flush(), *self._due_end(now)]
        return [*self._checked(piece), *self._flush(), *self._due_end(now)]

    def receive_peer_eof(self, now: float) -> list[Output]:
        """Pass the end on; if the debugger has ended without a word, after the reason."""
        if self._is_inside or not self._is_open:
            return [*self._released(), EndLocal()]
        self._end.append(EndLocal())
        if self._conclude_at is None:
            self._conclude_at = now + END_PATIENCE
        return self._due_end(now)

    def receive_peer_lost(self, now: float) -> list[Output]:
        """Pass the loss on: the owner opens another stream, or calls `conclude`."""
        self.has_stream = False
        conclusion = self._conclusion() if self._end and not self._is_inside else []
        return [*conclusion, *super().receive_peer_lost(now)]

    def next_deadline(self) -> float | None:
        """Return when to show that the connection is waiting or interrupted, or when to stop delaying its end."""
        deadlines = [self._conclude_at]
        if self._is_waiting:
            deadlines.append(self._waiting.next_deadline)
        if self._is_open:
            deadlines.append(self._interruption.next_deadline)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def tick(self, now: float) -> list[Output]:
        """Show the lines that are due."""
        if self._is_waiting:
            self._outbox.show_all(self._waiting.due(self._view, now))
        if self._is_open:
            self._outbox.show_all(self._interruption.due(self._view, now))
        return [*self._flush(), *self._due_end(now)]

    # From the editor:

    def _received(self, request: Request, piece: ToPeer) -> list[Output]:
        """Handle a request; return what the debugger receives."""
        match request["command"]:
            case "initialize":
                self._initialize = request
                if self._refusal:
                    self._refuse(request, self._refusal)
                    self._is_leaving, self._state = True, State.CONCLUDED
            case "attach":
                return [self._attaching(request, piece)]
            case "setBreakpoints":
                self._attach.breakpoints_requested(request, self._view)
            case "disconnect" | "terminate":
                return self._leave(request, piece)
        return [piece]

    def _attaching(self, request: Request, piece: ToPeer) -> ToPeer:
        changed, line = self._attach.requested(request, arguments_of(self._initialize or {}), self._view)
        if line:
            self._outbox.show(line)
        return piece if changed is request else ToPeer.of(changed)

    def _refuse(self, initialize: Request, reason: str) -> None:
        self._outbox.fail(initialize, f"cannot debug {self._view.name}: {reason}")

    def _leave(self, request: Request, piece: ToPeer) -> list[Output]:
        """Handle the end of the session by the editor: the job continues, unless the user allows otherwise."""
        self._is_leaving = True
        if not self.has_stream:
            self._outbox.succeed(request)
            return []
        self._farewell = request
        changed = harmless(request)
        if self._allow_terminate or changed is request:
            return [piece]
        self._outbox.show(GUARDED)
        # The editor waits for `terminated`, which follows the debugger's response to `disconnect`.
        if request["command"] == "terminate":
            self._dropped.add(request["seq"])
            self._farewell = None
            self._outbox.succeed(request)
        return [ToPeer.of(changed)]

    # From the debugger:

    def _checked(self, piece: ToLocal) -> list[Output]:
        """Return what the editor receives in place of a message."""
        if piece.head.name not in _COMMANDS or (response := piece.response()) is None:
            return [piece]
        number = response["request_seq"]
        if self._farewell is not None and number == self._farewell["seq"]:
            self._farewell = None
        if number in self._dropped:
            self._dropped.remove(number)
            return []
        if self._initialize is not None and number == self._initialize["seq"] and self._state is State.WAITING:
            self._state = State.ANSWERED
        if refused := self._attach.refusal(response, self._view):
            self._outbox.fail(*refused)
            return []
        if line := self._attach.line_about(response, self._view):
            self._outbox.show(line, IMPORTANT)
        return [piece]

    @property
    def _is_waiting(self) -> bool:
        """True if an editor is waiting for its first response."""
        return self._initialize is not None and self._state is State.WAITING

    @property
    def _is_open(self) -> bool:
        """True if the editor expects the session to continue."""
        return self._state is State.ANSWERED and not self._is_leaving

    def _delays_end(self, piece: ToLocal) -> bool:
        if not self._is_open or self._attach.is_child or not self._view.announces_endings:
            return False
        return piece.event() is not None

    # The end:

    def _due_end(self, now: float) -> list[Output]:
        """Conclude the session if it has ended and the reason is known or the time limit for it has expired."""
        if self._conclude_at is None:
            return []
        ending = self._view.ending
        is_known = bool(self._end) and ending is not None and ending.is_final
        if self._is_inside or not (is_known or now >= self._conclude_at):
            return []
        return self._conclusion()

    def _conclusion(self) -> list[Output]:
        """Return the reason, followed by the debugger's `terminated` or a replacement for it."""
        self._conclude_at = None
        if self._is_open:
            has_terminated = any(isinstance(output, ToLocal) for output in self._end)
            goes_on = self._view.is_running and self._view.ending is None and not has_terminated
            reason = debugger_ended_text(self._view, goes_on=goes_on)
            self._show_end(reason, may_return=goes_on, is_terminated=has_terminated)
        self._state = State.CONCLUDED
        return [*self._flush(), *self._released()]

    def _released(self) -> list[Output]:
        end, self._end = self._end, []
        return end

    def _show_end(self, reason: str, *, may_return: bool, is_terminated: bool = False) -> None:
        """Show how the job has ended, or else a reason; then add `terminated` unless the debugger has sent it."""
        client = arguments_of(self._initialize or {}).get("clientID")
        restarts = may_return and not self._attach.is_child and client in RESTARTING_CLIENTS
        if self._view.ending is not None:
            self._show_ending(self._view.ending)
        else:
            self._outbox.show(f"{reason}; attaching again" if restarts else reason, IMPORTANT)
        if not is_terminated:
            self._outbox.report("terminated", {"restart": {"relay-client": "attach again"}} if restarts else {})
            self._state = State.CONCLUDED

    def _show_ending(self, ending: Ending) -> None:
        code = exit_code(ending)
        self._outbox.show(ended_text(self._view, ending), IMPORTANT if code else CONSOLE)
        if code is not None:
            self._outbox.report("exited", {"exitCode": code})

    # To the editor:

    def _flush(self) -> list[Output]:
        """Return the queued messages."""
        return self._outbox.take() if self._outbox else []
