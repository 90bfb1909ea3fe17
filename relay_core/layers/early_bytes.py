"""Keeps what a local program sends before its peer answers, so that it can be sent again on another stream."""

from __future__ import annotations

from collections.abc import Callable

from relay_core.layers.layer import Abort, EndPeer, Layer, Output, ToPeer

__all__ = ["MAX_EARLY_BYTES", "EarlyBytes"]

MAX_EARLY_BYTES = 256 * 1024
"""Bytes kept of what a local program sends before anything comes back; with more than that no other stream is tried."""


class EarlyBytes(Layer):
    """Outlives a stream: started again with another one, it begins with the bytes that the first one was given.

    Args:
        on_committed: Called when the stream has answered, or more was sent than can be kept.
    """

    def __init__(self, on_committed: Callable[[], None] = lambda: None) -> None:
        self._kept = bytearray()
        self._on_committed = on_committed

    def __repr__(self) -> str:
        return f"<EarlyBytes {'committed' if self.is_finished else len(self._kept)}>"

    def __len__(self) -> int:
        return len(self._kept)

    def start(self, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Begin with what was kept."""
        return [ToPeer(bytes(self._kept))] if self._kept else []

    def receive_local(self, data: bytes, now: float) -> list[Output]:
        """Keep bytes of the local program, and pass them on."""
        if not self.is_finished:
            self._kept += data
            if len(self._kept) >= MAX_EARLY_BYTES:
                self._commit()
        return super().receive_local(data, now)

    def receive_local_eof(self, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Pass the end on; without any byte before it, drop the stream, because nobody waits for an answer."""
        if self.is_finished or self._kept:
            return [EndPeer()]
        return [Abort("left before it sent anything")]

    def receive_peer(self, data: bytes, now: float) -> list[Output]:
        """Pass the answer on; from now on there is nothing to keep."""
        self._commit()
        return super().receive_peer(data, now)

    def receive_peer_eof(self, now: float) -> list[Output]:
        """Pass the end on, which is an answer as well."""
        self._commit()
        return super().receive_peer_eof(now)

    def _commit(self) -> None:
        if not self.is_finished:
            self.is_finished = True
            self._kept.clear()
            self._on_committed()
