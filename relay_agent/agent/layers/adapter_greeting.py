"""A layer that delays the client's EOF or reset until debugpy's adapter has sent its greeting.

The adapter greets each connection in the thread that accepts connections: two `output` events, then `debugpySockets`.
If the connection closes before the last event, that thread exits, and every later debugger hangs
(microsoft/debugpy#1308). The layer therefore holds back the client's EOF or reset until the greeting is complete. Of
several simultaneous connections, only one receives the third event, so the delay is limited.
"""

from __future__ import annotations

from relay_core.layers.layer import Abort, EndLocal, Layer, Output, ResetLocal, ToPeer

__all__ = ["FIRST_BYTES_LIMIT", "GREETING_LIMIT", "GreetingGuard"]

LAST_EVENT = b'"debugpySockets"'
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

    def __repr__(self) -> str:
        return f"<GreetingGuard {'greeted' if self.is_finished else 'greeting' if self._has_begun else 'waiting'}>"

    def receive_local(self, piece: ToPeer, now: float) -> list[Output]:
        """Pass on bytes from the adapter; release the client's EOF or reset after the last event of the greeting."""
        outputs = super().receive_local(piece, now)
        if self.is_finished:
            return outputs
        if not self._has_begun:
            self._has_begun = True
            self._deadline = now + GREETING_LIMIT
        seen = self._tail + piece.data
        self._tail = seen[-len(LAST_EVENT) :]
        return [*outputs, *self._release()] if LAST_EVENT in seen else outputs

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
