"""A layer that keeps debugpy's adapter from losing a connection before it has greeted it.

The adapter greets each connection in the thread that accepts them: two `output` events, then `debugpySockets`. If the
connection ends before the last of them, that thread ends too, and every later debugger hangs (microsoft/debugpy#1308).
So the end of the client, orderly or not, is passed on only when the greeting is complete. Of several connections at the
same time only one gets the third event, so there is a limit to the wait.
"""

from __future__ import annotations

from relay_core.layers.layer import Abort, EndLocal, Layer, Output, ResetLocal

__all__ = ["FIRST_BYTES_LIMIT", "GREETING_LIMIT", "GreetingGuard"]

LAST_EVENT = b'"debugpySockets"'
FIRST_BYTES_LIMIT = 10.0
"""Seconds for the first bytes of the greeting; they come within milliseconds unless the machine is overloaded."""
GREETING_LIMIT = 2.0
"""Seconds for the rest of it."""
NO_GREETING = "debugpy took the connection and did not answer"


class GreetingGuard(Layer):
    """Stands next to the adapter, which is the local program here.

    Args:
        now: When the adapter was connected.
    """

    def __init__(self, now: float) -> None:
        self._deadline = now + FIRST_BYTES_LIMIT
        self._has_begun = False
        self._tail = b""
        """The last bytes of the greeting so far: its last event may come in pieces."""
        self._held: list[Output] = []
        """The end of the client, which the adapter must not see yet."""

    def __repr__(self) -> str:
        return f"<GreetingGuard {'greeted' if self.is_finished else 'greeting' if self._has_begun else 'waiting'}>"

    def receive_local(self, data: bytes, now: float) -> list[Output]:
        """Take bytes of the adapter; let go of the client's end behind the last of the greeting."""
        outputs = super().receive_local(data, now)
        if self.is_finished:
            return outputs
        if not self._has_begun:
            self._has_begun = True
            self._deadline = now + GREETING_LIMIT
        seen = self._tail + data
        self._tail = seen[-len(LAST_EVENT) :]
        return [*outputs, *self._let_go()] if LAST_EVENT in seen else outputs

    def receive_local_eof(self, now: float) -> list[Output]:
        """Pass the adapter's own end on, but not in the place of a greeting."""
        if not (self._has_begun or self.is_finished):
            return [Abort(NO_GREETING)]
        return [*super().receive_local_eof(now), *self._let_go()]

    def receive_peer_eof(self, now: float) -> list[Output]:
        """Keep the client's end until the adapter has greeted."""
        return self._hold(EndLocal()) if not self.is_finished else super().receive_peer_eof(now)

    def receive_peer_lost(self, now: float) -> list[Output]:
        """Keep the connection to the adapter until it has greeted."""
        return self._hold(ResetLocal()) if not self.is_finished else super().receive_peer_lost(now)

    def next_deadline(self) -> float | None:
        """Return when the greeting is not waited for any more."""
        return None if self.is_finished else self._deadline

    def tick(self, now: float) -> list[Output]:
        """Give up an adapter that is silent, and the wait for the rest of a greeting."""
        if self.is_finished or now < self._deadline:
            return []
        return self._let_go() if self._has_begun else [Abort(NO_GREETING)]

    def _hold(self, end: Output) -> list[Output]:
        self._held.append(end)
        return []

    def _let_go(self) -> list[Output]:
        self.is_finished = True
        held, self._held = self._held, []
        return held
