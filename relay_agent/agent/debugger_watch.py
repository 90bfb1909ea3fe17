"""A layer that ends the session of a debugger that no longer responds; the job continues, and can be attached to again.

debugpy can become silent while a session is open: its adapter handles requests in sequence, and one that is never
answered blocks all others (microsoft/debugpy#2048). Most requests may take any time, because they run code of the job.
A few never do. If one of those is the oldest without a response for `PATIENCE` seconds, the process is asked whether it
runs Python code at all: with the GIL held by C code, or stopped by a signal, it is only busy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from relay_core.dap.prefetch import parse
from relay_core.dap.splitter import MessageSplitter
from relay_core.layers.layer import Abort, Layer, Output

__all__ = ["PATIENCE", "PROMPT", "DebuggerWatch"]

PROMPT = frozenset({"continue", "next", "pause", "stepIn", "stepOut", "threads"})
"""Requests that debugpy answers without running code of the job."""
OUT_OF_ORDER = "evaluate"
"""The request for whose response the adapter does not wait."""
PATIENCE = 30.0
"""Seconds for the response to such a request; it takes milliseconds, also on a loaded machine less than one second."""
MAX_PENDING = 1000
"""Requests without a response that are noted; an editor has a handful."""
CHECK_INTERVAL = 1.0
"""Seconds between two looks at the answer of the process."""


class DebuggerWatch(Layer):
    """The layer of one connection; debugpy is the local program, the client is the peer.

    Args:
        check: Asks whether the process is running although its debugger is silent. False if it is busy, or unknown.
    """

    def __init__(self, check: Callable[[], asyncio.Future[bool]]) -> None:
        self._check = check
        self._from_editor = MessageSplitter()
        self._from_debugger = MessageSplitter()
        self._pending: dict[int, str] = {}
        """Commands without a response by sequence number, the oldest first."""
        self._deadline = 0.0
        """When the oldest of them is late, or the answer of the process is looked at."""
        self._checking: asyncio.Future[bool] | None = None

    def __repr__(self) -> str:
        return f"<DebuggerWatch pending={list(self._pending.values())}>"

    def receive_peer(self, data: bytes, now: float) -> list[Output]:
        """Pass bytes of the client on, and note its requests."""
        for piece in self._from_editor.feed(data):
            if request := parse(piece.body, "request"):
                if not self._pending:
                    self._deadline = now + PATIENCE
                self._pending[request["seq"]] = request["command"]
        if len(self._pending) > MAX_PENDING:
            self.is_finished = True
        return super().receive_peer(data, now)

    def receive_local(self, data: bytes, now: float) -> list[Output]:
        """Pass bytes of debugpy on, and note its responses."""
        for piece in self._from_debugger.feed(data):
            if b'"response"' in piece.body and (response := parse(piece.body, "response")):
                self._forget(response["request_seq"], now)
        return super().receive_local(data, now)

    def next_deadline(self) -> float | None:
        """Return when the oldest request is late, if it is one that is answered promptly."""
        return self._deadline if next(iter(self._pending.values()), "") in PROMPT else None

    def tick(self, now: float) -> list[Output]:
        """Ask the process if a request is late, and abort if it is running."""
        deadline = self.next_deadline()
        if deadline is None or now < deadline:
            return []
        self._deadline = now + CHECK_INTERVAL
        if self._checking is None:
            self._checking = self._check()
        elif self._checking.done():
            if not self._checking.cancelled() and self._checking.exception() is None and self._checking.result():
                command = next(iter(self._pending.values()))
                return [
                    Abort(f"debugpy has not answered '{command}' for {PATIENCE:g} s; the job continues; attach again")
                ]
            self._checking, self._deadline = None, now + PATIENCE
        return []

    def _forget(self, number: int, now: float) -> None:
        """Remove a request with a response, and those before it: their responses were too long to be parsed."""
        if number not in self._pending:
            return
        for earlier in list(self._pending):
            if earlier == number or self._pending[earlier] != OUT_OF_ORDER:
                del self._pending[earlier]
            if earlier == number:
                break
        self._checking, self._deadline = None, now + PATIENCE
