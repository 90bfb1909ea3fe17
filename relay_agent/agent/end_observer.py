"""A layer that detects the end of a debug session.

An exiting process then need not wait for the editor to disconnect.
"""

from __future__ import annotations

from collections.abc import Callable

from relay_core.layers.layer import Layer, Output, ToPeer

__all__ = ["EndObserver"]

LAST_EVENT = b'"terminated"'
"""The last event of a debugger. The same text in another message only shortens the wait."""


class EndObserver(Layer):
    """The layer of one connection; the debugger is the local program.

    Args:
        on_end: Called once, after the end was passed on.
    """

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._tail = b""
        """The last bytes so far, because the event may arrive in parts."""
        self._is_due = False

    def __repr__(self) -> str:
        return f"<EndObserver {'ended' if self.is_finished else 'running'}>"

    def receive_local(self, piece: ToPeer, now: float) -> list[Output]:
        """Pass bytes of the debugger on."""
        seen = self._tail + piece.data
        self._tail = seen[1 - len(LAST_EVENT) :]
        if LAST_EVENT in seen:
            self._is_due = True
        return super().receive_local(piece, now)

    def receive_local_eof(self, now: float) -> list[Output]:
        """Pass the debugger's EOF on."""
        self._is_due = True
        return super().receive_local_eof(now)

    def next_deadline(self) -> float | None:
        """Return a time in the past once the end was seen: `tick` is called as soon as the end was passed on."""
        return 0.0 if self._is_due and not self.is_finished else None

    def tick(self, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Report the end."""
        if self._is_due and not self.is_finished:
            self.is_finished = True
            self._on_end()
        return []
