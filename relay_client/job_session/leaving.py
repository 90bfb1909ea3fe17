"""The end of a session: at the editor's request, or with the exit code of a job that has ended."""

from __future__ import annotations

from relay_client.job_session.members import Member, Members
from relay_client.job_session.wire import CloseRank, EndSession, Wire
from relay_core.dap.messages import Request

__all__ = ["LEAVE_TIMEOUT", "ExitCodes", "Leaving"]

LEAVE_TIMEOUT = 1.5
"""Seconds until the editor is answered even if ranks have not been detached, for example because their network is
down. VS Code waits 2 s for the answer (vscode/src/vs/workbench/contrib/debug/browser/rawDebugSession.ts)."""
_BY_LAUNCHER = {143: 2, 137: 1}
"""SIGTERM and SIGKILL, with which a launcher ends the other ranks once one has failed; it sends SIGTERM first."""


class Leaving:
    """Detaches from all ranks, and then answers the editor.

    An editor that has its answer may connect again at once, and the debugger of a rank closes a connection that is made
    before the previous debug session has ended.

    Args:
        members: The attached ranks; each is removed when its connection has ended.
        wire: For requests and answers.
    """

    def __init__(self, members: Members, wire: Wire) -> None:
        self._members = members
        self._wire = wire
        self._request: Request | None = None
        self._deadline: float | None = None

    def __repr__(self) -> str:
        return f"<Leaving {'not requested' if self._request is None else f'by {self._deadline:.3f}'}>"

    def detach(self, *, ends: bool) -> None:
        """Detach from all ranks; they continue, or end if `ends` is true."""
        for member in self._members:
            self._wire.ask(member.number, "disconnect", {"terminateDebuggee": ends})
            self._wire.put(CloseRank(member.number))

    def end_session(self, request: Request, now: float) -> None:
        """Answer the request and end the session once all ranks are detached."""
        self._request, self._deadline = request, now + LEAVE_TIMEOUT
        self.left()

    def left(self) -> None:
        """Follow the end of a connection to a rank."""
        if not len(self._members):
            self._finish()

    def next_deadline(self) -> float | None:
        """Return when to call `tick`, or None."""
        return self._deadline

    def tick(self, now: float) -> None:
        """Answer without waiting any longer, if the time is up."""
        if self._deadline is not None and now >= self._deadline:
            self._finish()

    def _finish(self) -> None:
        if self._request is not None:
            self._wire.answer(self._request)
            self._wire.put(EndSession())
            self._request = self._deadline = None


class ExitCodes:
    """The exit codes of the ranks that have ended, in the order in which they became known."""

    def __init__(self) -> None:
        self._found: dict[tuple[bool, int, str], int] = {}

    def __repr__(self) -> str:
        return f"<ExitCodes {list(self._found.values())}>"

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, member: Member, code: int) -> None:
        """Record how a rank has ended, in place of how it ended before it was restarted."""
        self._found.pop(member.order, None)
        self._found[member.order] = code

    @property
    def of_job(self) -> int:
        """The exit code of the rank that failed first, if possible of one that the launcher has not ended; else 0."""
        failed = [code for code in self._found.values() if code]
        return min(failed, key=lambda code: _BY_LAUNCHER.get(code, 0), default=0)
