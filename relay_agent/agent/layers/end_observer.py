"""A layer that detects the end of a debug session.

An exiting process therefore does not have to wait for the editor to disconnect.
"""

from __future__ import annotations

from collections.abc import Callable

from relay_core.layers.layer import Layer, Output, ToPeer

__all__ = ["EndObserver"]

NAME = "terminated"
LAST_EVENT = b'"%b"' % NAME.encode()
"""The last event that a debugger sends. If another message contains the same text, the only effect is that an exiting
process waits for less time."""


class EndObserver(Layer):
    """The layer for one connection; the debugger is the local program.

    Args:
        on_end: Called once, after the end has been passed on.
    """

    local_names, peer_names = frozenset({NAME}), frozenset[str]()

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._tail = b""
        """The last bytes so far, because the event may arrive in parts."""
        self._is_due = False

    def __repr__(self) -> str:
        return f"<EndObserver {'ended' if self.is_finished else 'running'}>"

    def receive_local(self, piece: ToPeer, now: float) -> list[Output]:
        """Pass on bytes from the debugger."""
        seen = self._tail + piece.data
        self._tail = seen[1 - len(LAST_EVENT) :]
        if LAST_EVENT in seen:
            self._is_due = True
        return super().receive_local(piece, now)

    def receive_local_eof(self, now: float) -> list[Output]:
        """Pass on the debugger's EOF."""
        self._is_due = True
        return super().receive_local_eof(now)

    def next_deadline(self) -> float | None:
        """Return a time in the past once the end has been seen: `tick` is then called after the end was passed on."""
        return 0.0 if self._is_due and not self.is_finished else None

    def tick(self, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Report the end."""
        if self._is_due and not self.is_finished:
            self.is_finished = True
            self._on_end()
        return []
