"""The end of an editor's session: it never terminates the job unless allowed, and is held back to show the reason."""

from __future__ import annotations

from relay_client.editor.messages import CONSOLE, GUARDED, IMPORTANT, JobView
from relay_client.editor.notices import Outbox
from relay_client.ranks.view import END_PATIENCE, EXIT_PATIENCE, exit_code, how_ended
from relay_core.dap.messages import Request, arguments_of
from relay_core.layers.layer import EndLocal, Output, ToLocal, ToPeer

# The requests through which an editor ends its session: they never terminate the job unless the user allows that.


def harmless(request: Request) -> Request:
    """Return a harmless request in place of one that would terminate the job; return other requests unchanged."""
    arguments = arguments_of(request)
    if request["command"] == "terminate":
        return {**request, "command": "disconnect", "arguments": {"terminateDebuggee": False}}
    if request["command"] == "disconnect" and arguments.get("terminateDebuggee") is True:
        return {**request, "arguments": {**arguments, "terminateDebuggee": False}}
    return request


class DisconnectGuard:
    """The `disconnect` and `terminate` requests of one editor.

    Args:
        outbox: The messages for the editor.
        allow_terminate: Whether the editor may terminate the job.
    """

    def __init__(self, outbox: Outbox, *, allow_terminate: bool) -> None:
        self.has_begun = False
        """True if the editor has requested the end of the session, or has closed its connection."""
        self._outbox = outbox
        self._allow_terminate = allow_terminate
        self._unanswered: Request | None = None
        """The last request, until the debugger has answered it."""
        self._answered: set[int] = set()
        """The `seq` of each request whose response the editor has already received."""

    def requested(self, request: Request, piece: ToPeer, *, has_stream: bool) -> list[Output]:
        """Handle a request; return what the debugger receives."""
        self.has_begun = True
        if not has_stream:
            self._outbox.answer(request)
            return []
        self._unanswered = request
        changed = harmless(request)
        if self._allow_terminate or changed is request:
            return [piece]
        self._outbox.show(GUARDED)
        # The editor waits for `terminated`, which follows the debugger's response to `disconnect`.
        if request["command"] == "terminate":
            self._answered.add(request["seq"])
            self._unanswered = None
            self._outbox.answer(request)
        return [ToPeer.of(changed)]

    def responded(self, number: int) -> bool:
        """Record the debugger's response to a request; return True if the editor already has a response to it."""
        if self._unanswered is not None and number == self._unanswered["seq"]:
            self._unanswered = None
        if number not in self._answered:
            return False
        self._answered.remove(number)
        return True

    def answer(self) -> None:
        """Answer the unanswered request in place of the debugger, which can no longer answer."""
        if self._unanswered is not None:
            self._outbox.answer(self._unanswered)


# The end of an editor's session, which is held back until the editor can be shown the reason.

RESTARTING_CLIENTS = frozenset({"vscode", "neovim"})
"""Editors that attach again if `terminated` contains `restart`; other editors would report a failed session."""


class SessionEnd:
    """What the debugger has sent to end the session, and the reason.

    Args:
        outbox: The messages for the editor.
    """

    def __init__(self, outbox: Outbox) -> None:
        self.deadline: float | None = None
        """When to end the session even if the reason is still unknown; None if the session has not ended."""
        self._outbox = outbox
        self._held: list[Output] = []
        """The debugger's `terminated`, and its EOF."""

    @property
    def is_held(self) -> bool:
        """True if the debugger has ended the session and the editor has not been notified yet."""
        return bool(self._held)

    def hold(self, end: ToLocal | EndLocal, view: JobView, now: float) -> None:
        """Hold back `terminated`, or the debugger's EOF."""
        self._held.append(end)
        if isinstance(end, ToLocal):
            self.deadline = now + (END_PATIENCE if view.ending is None else EXIT_PATIENCE)
        elif self.deadline is None:
            self.deadline = now + END_PATIENCE

    def announced(self, *, is_final: bool, now: float) -> None:
        """Handle the announcement of how the job ends; unless it is final, the exit status follows."""
        if not is_final:
            self.deadline = now + EXIT_PATIENCE if self._held else None
        elif self.deadline is None:
            self.deadline = now + END_PATIENCE  # the debugger's own end should arrive first

    def is_due(self, view: JobView, now: float) -> bool:
        """True if the session has ended and the reason is known, or was not announced in time."""
        if self.deadline is None:
            return False
        is_known = bool(self._held) and view.ending is not None and view.ending.is_final
        return is_known or now >= self.deadline

    def conclude(self, view: JobView, client: object) -> None:
        """Show why the session has ended, and report `terminated` if the debugger has not.

        Args:
            view: What is known about the job.
            client: The editor's `clientID` if it may attach again, else None.
        """
        has_terminated = any(isinstance(output, ToLocal) for output in self._held)
        goes_on = view.is_running and view.ending is None and not has_terminated
        returning = client if goes_on else None
        reason = "the debug session has ended; the job's exit status is unknown"
        if goes_on:
            reason = f"the debugger exited unexpectedly; {view.subject} continues without a debugger"
        self.show(view, reason, returning)
        if not has_terminated:
            self.terminate(returning)

    def release(self) -> list[Output]:
        """Return the messages that were held back."""
        self.deadline = None
        held, self._held = self._held, []
        return held

    def refuse(self, initialize: Request, view: JobView, reason: str) -> None:
        """Fail the first request of a session that cannot begin."""
        self._outbox.fail(initialize, f"cannot debug {view.name}: {reason}")

    def show(self, view: JobView, reason: str, client: object = None) -> None:
        """Show how the job has ended or, if that is unknown, the reason and whether the editor attaches again.

        Args:
            view: What is known about the job.
            reason: One sentence.
            client: The editor's `clientID` if it may attach again, else None.
        """
        if view.ending is None:
            self._outbox.show(f"{reason}; attaching again" if client in RESTARTING_CLIENTS else reason, IMPORTANT)
            return
        code = exit_code(view.ending)
        self._outbox.show(f"{view.subject} {how_ended(view.ending)}", IMPORTANT if code else CONSOLE)
        if code is not None:
            self._outbox.event("exited", {"exitCode": code})

    def terminate(self, client: object) -> None:
        """Report the end of the session; an editor that can attach again does so if `client` names it."""
        restarts = client in RESTARTING_CLIENTS
        self._outbox.event("terminated", {"restart": {"relay-client": "attach again"}} if restarts else {})
