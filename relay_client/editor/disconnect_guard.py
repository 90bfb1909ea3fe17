"""The requests through which an editor ends its session: they never terminate the job unless the user allows that."""

from __future__ import annotations

from relay_client.editor.outbox import Outbox
from relay_client.editor.sentences import GUARDED
from relay_core.dap.messages import Request, arguments_of
from relay_core.layers.layer import Output, ToPeer

__all__ = ["DisconnectGuard", "harmless"]


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

    def __repr__(self) -> str:
        return f"<DisconnectGuard {'begun' if self.has_begun else 'not begun'}>"

    def requested(self, request: Request, piece: ToPeer, *, has_stream: bool) -> list[Output]:
        """Handle a request; return what the debugger receives."""
        self.has_begun = True
        if not has_stream:
            self._outbox.succeed(request)
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
            self._outbox.succeed(request)
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
            self._outbox.succeed(self._unanswered)
