"""Layers between a client's stream and debugpy: the adapter's greeting, hung debuggers, and the end of a session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from relay_core.dap.messages import arguments_of
from relay_core.layers.layer import Abort, EndLocal, Layer, Output, ResetLocal, ToLocal, ToPeer
from relay_core.layers.piece import MAX_PARSED, Kind

# A layer that delays the client's EOF or reset until debugpy's adapter has sent its greeting.
#
# The adapter greets each connection in the thread that accepts connections: two `output` events, then `debugpySockets`.
# If the connection closes before the last event, that thread exits, and every later debugger hangs
# (microsoft/debugpy#1308). The layer therefore holds back the client's EOF or reset until the greeting is complete. Of
# several simultaneous connections, only one receives the third event, so the delay is limited.

GREETING_EVENT = b'"debugpySockets"'
FIRST_BYTES_LIMIT = 10.0
"""Timeout in seconds for the first bytes of the greeting, which arrive within milliseconds unless the machine is
overloaded."""
GREETING_LIMIT = 2.0
"""Timeout in seconds for the rest of the greeting."""
NO_GREETING = "debugpy accepted the connection but did not answer"


class GreetingGuard(Layer):
    """The layer for one connection; the adapter is the local program.

    Args:
        now: When the connection to the adapter was made.
    """

    def __init__(self, now: float) -> None:
        self._deadline = now + FIRST_BYTES_LIMIT
        self._has_begun = False
        self._tail = b""
        """The last bytes of the greeting so far, because its last event may arrive in parts."""
        self._held: list[Output] = []
        """The client's EOF or reset, held back from the adapter."""

    def receive_local(self, piece: ToPeer, now: float) -> list[Output]:
        """Pass on bytes from the adapter; release the client's EOF or reset after the last event of the greeting."""
        outputs = super().receive_local(piece, now)
        if self.is_finished:
            return outputs
        if not self._has_begun:
            self._has_begun = True
            self._deadline = now + GREETING_LIMIT
        seen = self._tail + piece.data
        self._tail = seen[-len(GREETING_EVENT) :]
        return [*outputs, *self._release()] if GREETING_EVENT in seen else outputs

    def receive_local_eof(self, now: float) -> list[Output]:
        """Pass on the adapter's EOF; abort if no greeting preceded it."""
        if not (self._has_begun or self.is_finished):
            return [Abort(NO_GREETING)]
        return [*super().receive_local_eof(now), *self._release()]

    def receive_peer_eof(self, now: float) -> list[Output]:
        """Hold back the client's EOF until the adapter has sent its greeting."""
        return self._hold(EndLocal()) if not self.is_finished else super().receive_peer_eof(now)

    def receive_peer_lost(self, now: float) -> list[Output]:
        """Keep the connection to the adapter open until the adapter has sent its greeting."""
        return self._hold(ResetLocal()) if not self.is_finished else super().receive_peer_lost(now)

    def next_deadline(self) -> float | None:
        """Return when the wait for the greeting times out."""
        return None if self.is_finished else self._deadline

    def tick(self, now: float) -> list[Output]:
        """At the deadline, abort if no bytes have arrived, or stop waiting for the rest of the greeting."""
        if self.is_finished or now < self._deadline:
            return []
        return self._release() if self._has_begun else [Abort(NO_GREETING)]

    def _hold(self, end: Output) -> list[Output]:
        self._held.append(end)
        return []

    def _release(self) -> list[Output]:
        self.is_finished = True
        held, self._held = self._held, []
        return held


# A layer that ends the session of a debugger that no longer responds. The job continues and can be debugged again.
#
# debugpy can stop responding while a session is open: its adapter handles requests in sequence, and one that is never
# answered blocks all others (microsoft/debugpy#2048). Most requests may take any amount of time, because they run the
# job's code, but a few always complete quickly. If one of those is the oldest pending request for `PATIENCE` seconds,
# this layer checks whether the process is running Python code at all. A process that is stopped by a signal, or whose
# GIL is held by C code, is only busy. If the process cannot be checked, because the debugger was started by another
# program (`relay-agent serve`), the session ends without a check: the user has no other way to end it, and can attach
# again. For the session of a followed child process, the layer checks the parent, the only process that the agent
# knows. The agent cannot reach the child itself, so a child that is stopped remains stopped, and the reason states how
# to kill it.

PROMPT = frozenset({"continue", "next", "pause", "stepIn", "stepOut", "threads"})
"""Requests that debugpy answers without running the job's code."""
OUT_OF_ORDER = "evaluate"
"""The only request whose response the adapter does not wait for; it delays no other request, and is not recorded."""
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

    def receive_peer(self, piece: ToLocal, now: float) -> list[Output]:
        """Pass on bytes from the client, and record its requests."""
        if (request := piece.request()) and request["command"] != OUT_OF_ORDER:
            if not self._pending:
                self._deadline = now + PATIENCE
            self._pending[request["seq"]] = request["command"]
            if request["command"] == "attach":
                child = arguments_of(request).get("subProcessId")  # set to answer debugpy's announcement of a child
                self._child = child if isinstance(child, int) else None
        if len(self._pending) > MAX_PENDING:
            self.is_finished = True
        return [piece]

    def receive_local(self, piece: ToPeer, now: float) -> list[Output]:
        """Pass on bytes from debugpy, and record its responses."""
        if piece.type == "response":
            self._forget(piece.request_seq, now)
        elif piece.kind is Kind.LAST_PART:  # perhaps the response to the oldest request, unless that has a short one
            oldest, command = next(iter(self._pending.items()), (0, ""))
            if command not in PROMPT:
                self._forget(oldest, now)
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
            del self._pending[earlier]
            if earlier == number:
                break
        self._checking, self._deadline = None, now + PATIENCE


# A layer that detects the end of a debug session.
#
# An exiting process therefore does not have to wait for the editor to disconnect, nor does the next debugger.

NAME = "terminated"
END_EVENT = b'"%b"' % NAME.encode()
"""The last event that a debugger sends. If another message contains the same text, the only effect is that an exiting
process waits for less time."""


class EndObserver(Layer):
    """The layer for one connection; the debugger is the local program.

    Args:
        on_end: Called once, after the end has been passed on.
        is_dap: False if only EOF ends the connection, because it carries another protocol.
    """

    local_names, peer_names = frozenset({NAME}), frozenset[str]()

    def __init__(self, on_end: Callable[[], None], *, is_dap: bool) -> None:
        self._on_end = on_end
        self._is_dap = is_dap
        self._tail = b""
        """The last bytes so far, because the event may arrive in parts."""
        self._is_due = self._is_reported = False

    def receive_local(self, piece: ToPeer, now: float) -> list[Output]:
        """Pass on bytes from the debugger."""
        if self._is_dap:
            seen = self._tail + piece.data
            self._tail = seen[1 - len(END_EVENT) :]
            self._is_due = self._is_due or END_EVENT in seen
        return super().receive_local(piece, now)

    def receive_local_eof(self, now: float) -> list[Output]:
        """Pass on the debugger's EOF.

        debugpy's adapter closes its connection after its response to `disconnect`. The session is then over, although
        an editor may keep its own direction open; what it still sends is discarded.
        """
        self._is_due = True
        outputs = super().receive_local_eof(now)
        return [*outputs, EndLocal()] if self._is_dap else outputs

    def next_deadline(self) -> float | None:
        """Return a time in the past once the end has been seen: `tick` is then called after the end was passed on."""
        return 0.0 if self._is_due and not self._is_reported else None

    def tick(self, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Report the end."""
        if self._is_due and not self._is_reported:
            self._is_reported = True
            self._on_end()
        return []
