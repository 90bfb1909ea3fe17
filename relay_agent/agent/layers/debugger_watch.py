"""A layer that ends the session of a debugger that no longer responds. The job continues and can be debugged again.

debugpy can stop responding while a session is open: its adapter handles requests in sequence, and one that is never
answered blocks all others (microsoft/debugpy#2048). Most requests may take any amount of time, because they run the
job's code, but a few always complete quickly. If one of those is the oldest pending request for `PATIENCE` seconds,
this layer checks whether the process is running Python code at all. A process that is stopped by a signal, or whose GIL
is held by C code, is only busy. If the process cannot be checked, because the debugger was started by another program
(`relay-agent serve`), the session ends without a check: the user has no other way to end it, and can attach again. For
the session of a followed child process, the layer checks the parent, the only process that the agent knows. The agent
cannot reach the child itself, so a child that is stopped remains stopped, and the reason states how to kill it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from relay_core.dap.messages import Request
from relay_core.layers.layer import Abort, Layer, Output, ToLocal, ToPeer
from relay_core.layers.piece import MAX_PARSED

__all__ = ["PATIENCE", "PROMPT", "DebuggerWatch"]

PROMPT = frozenset({"continue", "next", "pause", "stepIn", "stepOut", "threads"})
"""Requests that debugpy answers without running the job's code."""
OUT_OF_ORDER = "evaluate"
"""The only request whose response the adapter does not wait for."""
PATIENCE = 30.0
"""Timeout in seconds for a request in `PROMPT`. A response takes milliseconds, and less than one second even on a
heavily loaded machine."""
MAX_PENDING = 1000
"""Maximum number of pending requests that are recorded; an editor has only a few."""
CHECK_INTERVAL = 1.0
"""Seconds between checks of whether the process has answered."""


class DebuggerWatch(Layer):
    """The layer for one connection; debugpy is the local program, and the client is the peer.

    Args:
        check: Returns True if the process is running although its debugger is not responding, False if it is busy, and
            None if this agent cannot check it.
    """

    longest_local = longest_peer = MAX_PARSED

    def __init__(self, check: Callable[[], asyncio.Future[bool | None]]) -> None:
        self._check = check
        self._pending: dict[int, str] = {}
        """Commands of pending requests by sequence number, oldest first."""
        self._deadline = 0.0
        """Time at which the oldest pending request becomes overdue, or at which to check whether the process has
        answered."""
        self._checking: asyncio.Future[bool | None] | None = None
        self._child: int | None = None
        """Process id of the child that is debugged through this connection; None if the process itself is debugged."""

    def __repr__(self) -> str:
        return f"<DebuggerWatch pending={list(self._pending.values())}>"

    def receive_peer(self, piece: ToLocal, now: float) -> list[Output]:
        """Pass on bytes from the client, and record its requests."""
        if request := piece.request():
            if not self._pending:
                self._deadline = now + PATIENCE
            self._pending[request["seq"]] = request["command"]
            if request["command"] == "attach":
                self._child = _child_of(request)
        if len(self._pending) > MAX_PENDING:
            self.is_finished = True
        return [piece]

    def receive_local(self, piece: ToPeer, now: float) -> list[Output]:
        """Pass on bytes from debugpy, and record its responses."""
        if piece.type == "response":
            self._forget(piece.request_seq, now)
        return [piece]

    def next_deadline(self) -> float | None:
        """Return when the oldest request becomes overdue, if it is one that completes quickly."""
        return self._deadline if next(iter(self._pending.values()), "") in PROMPT else None

    def tick(self, now: float) -> list[Output]:
        """Check the process if a request is overdue, and abort if the process is running."""
        deadline = self.next_deadline()
        if deadline is None or now < deadline:
            return []
        self._deadline = now + CHECK_INTERVAL
        if self._checking is None:
            self._checking = self._check()
        elif self._checking.done():
            failed = self._checking.cancelled() or self._checking.exception() is not None
            is_running = False if failed else self._checking.result()
            if is_running is not False:
                return [self._abort("the job continues" if is_running else "its session was ended")]
            self._checking, self._deadline = None, now + PATIENCE
        return []

    def _abort(self, effect: str) -> Abort:
        command = next(iter(self._pending.values()))
        consequence = f"{effect}, and you can attach again"
        if self._child is not None:
            consequence = (
                f"the session of child process {self._child} was ended; if the process is stopped, it stays stopped; "
                f"to kill it, run 'kill {self._child}' on its node"
            )
        return Abort(f"debugpy has not answered '{command}' for {PATIENCE:g} s; {consequence}")

    def _forget(self, number: int, now: float) -> None:
        """Remove an answered request and those before it, whose responses were too long to be parsed."""
        if number not in self._pending:
            return
        for earlier in list(self._pending):
            if earlier == number or self._pending[earlier] != OUT_OF_ORDER:
                del self._pending[earlier]
            if earlier == number:
                break
        self._checking, self._deadline = None, now + PATIENCE


def _child_of(attach: Request) -> int | None:
    """Return the process id in an `attach` that answers debugpy's announcement of a child; else None."""
    arguments = attach.get("arguments")
    child = arguments.get("subProcessId") if isinstance(arguments, dict) else None
    return child if isinstance(child, int) else None
